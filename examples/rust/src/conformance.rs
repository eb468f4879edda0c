//! Answer the commands of `taskraft conformance`: one JSON line for each line of the standard input.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tonic::Code;

use crate::client::{Client, Refusal, SESSION_TTR_MS, Subscription, acknowledgement};
use crate::pb::settlement::{Action, Bury, Release, Touch};
use crate::pb::{ItemError, PutTasksRequest, Settlement, TakeSource, TakeTasksRequest, Task, TaskSpec};

type Failure = Box<dyn Error>;

/// Answer commands until the end of the standard input.
pub async fn conform(client: Arc<Client>) -> Result<(), Failure> {
    let mut lines = BufReader::new(stdin()).lines();
    let mut subscription = None;
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let answer = match execute(&client, &mut subscription, &command).await {
            Ok(answer) => answer,
            Err(failure) => error_value(*failure.downcast::<Refusal>()?),
        };
        println!("{answer}");
    }
    Ok(())
}

fn error_value(refusal: Refusal) -> Value {
    let code = match refusal.code {
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::Unauthenticated => "UNAUTHENTICATED",
        Code::Unavailable => "UNAVAILABLE",
        _ => "UNKNOWN",
    };
    json!({"error": {
        "code": code, "reason": refusal.reason, "message": refusal.message, "metadata": refusal.metadata,
    }})
}

async fn execute(
    client: &Arc<Client>,
    subscription: &mut Option<Subscription>,
    command: &Value,
) -> Result<Value, Failure> {
    let opened = "there is no subscription";
    match text(command, "call") {
        "put" => put(client, command).await,
        "take" => take(client, command).await,
        "settle" => {
            let answer = client.settle(settlement(command)?).await?;
            Ok(json!({"errors": items(answer.errors)}))
        }
        "subscribe" => {
            let credit = number(command, "credit")?.unwrap_or(0).try_into()?;
            let tube = text(command, "tube").into();
            let ttr_ms = number(command, "session_ttr_ms")?.unwrap_or(SESSION_TTR_MS);
            *subscription = Some(Subscription::open(client.clone(), tube, credit, ttr_ms));
            Ok(json!({}))
        }
        "next" => {
            let wait = Duration::from_millis(number(command, "wait_ms")?.unwrap_or(0).try_into()?);
            let task = subscription.as_mut().ok_or(opened)?.next(wait).await?;
            Ok(json!({"task": task.map(shown)}))
        }
        "stream_ack" => {
            let errors = subscription.as_ref().ok_or(opened)?.acknowledge(tokens(command)?).await?;
            Ok(json!({"errors": items(errors)}))
        }
        "unsubscribe" => {
            subscription.take().ok_or(opened)?.close().await?;
            Ok(json!({}))
        }
        other => Err(format!("there is no command {other:?}").into()),
    }
}

async fn put(client: &Client, command: &Value) -> Result<Value, Failure> {
    let mut tasks = vec![];
    for task in command["tasks"].as_array().into_iter().flatten() {
        tasks.push(TaskSpec {
            payload: BASE64_STANDARD.decode(text(task, "payload"))?,
            headers: headers(&task["headers"])?,
            priority: number(task, "priority")?,
            delay_ms: number(task, "delay_ms")?,
            ..Default::default()
        });
    }
    let request = PutTasksRequest {
        tube: text(command, "tube").into(),
        request_id: text(command, "request_id").into(),
        client_id: text(command, "client_id").into(),
        tasks,
        ..Default::default()
    };
    let answer = client.put(request).await?;
    let ids: Vec<String> = answer.task_ids.iter().map(i64::to_string).collect();
    Ok(json!({"task_ids": ids, "errors": items(answer.errors)}))
}

async fn take(client: &Client, command: &Value) -> Result<Value, Failure> {
    let request = TakeTasksRequest {
        sources: vec![TakeSource { tube: text(command, "tube").into(), ..Default::default() }],
        tasks_max: number(command, "tasks_max")?.unwrap_or(1).try_into()?,
        wait_ms: number(command, "wait_ms")?,
        ttr_ms: number(command, "ttr_ms")?,
        ..Default::default()
    };
    let answer = client.take(request).await?;
    let tasks: Vec<Value> = answer.tasks.into_iter().map(shown).collect();
    Ok(json!({"tasks": tasks}))
}

fn settlement(command: &Value) -> Result<Settlement, Failure> {
    let tokens = tokens(command)?;
    let action = match text(command, "action") {
        "ack" => return Ok(acknowledgement(tokens)),
        "bury" => Action::Bury(Bury::default()),
        "release" => Action::Release(Release { delay_ms: number(command, "delay_ms")?, ..Default::default() }),
        "touch" => {
            Action::Touch(Touch { increment_ms: number(command, "increment_ms")?.unwrap_or(0), ..Default::default() })
        }
        other => return Err(format!("there is no action {other:?}").into()),
    };
    Ok(Settlement { tokens, action: Some(action) })
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or("")
}

/// Return a number, which may be a text so that all 64 bits are kept.
fn number(object: &Value, name: &str) -> Result<Option<i64>, Failure> {
    match &object[name] {
        Value::String(text) => Ok(Some(text.parse()?)),
        other => Ok(other.as_i64()),
    }
}

fn tokens(command: &Value) -> Result<Vec<i64>, Failure> {
    let texts = command["tokens"].as_array().into_iter().flatten();
    texts.map(|token| Ok(token.as_str().unwrap_or("").parse()?)).collect()
}

fn headers(object: &Value) -> Result<HashMap<String, Vec<u8>>, Failure> {
    let entries = object.as_object().into_iter().flatten();
    entries.map(|(key, content)| Ok((key.clone(), BASE64_STANDARD.decode(content.as_str().unwrap_or(""))?))).collect()
}

fn items(errors: Vec<ItemError>) -> Vec<Value> {
    let refused = errors.into_iter().map(|item| {
        let reason = item.error.map(|error| error.reason().as_str_name()).unwrap_or("");
        json!({"item": item.item, "reason": reason})
    });
    refused.collect()
}

fn shown(task: Task) -> Value {
    let spec = task.spec.unwrap_or_default();
    let headers: Map<String, Value> =
        spec.headers.iter().map(|(key, content)| (key.clone(), BASE64_STANDARD.encode(content).into())).collect();
    json!({
        "id": task.id.to_string(),
        "token": task.token.to_string(),
        "attempt": task.attempt,
        "payload": BASE64_STANDARD.encode(&spec.payload),
        "headers": headers,
    })
}
