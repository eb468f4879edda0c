//! A producer and a consumer in Rust, from the contract alone.
//!
//! ```text
//! taskraft-example produce TUBE COUNT
//! taskraft-example consume TUBE COUNT
//! taskraft-example conformance
//! ```
//!
//! The client is in `client.rs`. The environment variable TASKRAFT_TARGET has the addresses of the nodes.

mod client;
mod conformance;

/// The messages and stubs that are generated from the contract.
#[allow(clippy::all)]
pub mod pb {
    tonic::include_proto!("taskraft.v1");
}

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, SESSION_TTR_MS, Subscription};
use pb::{PutTasksRequest, TaskSpec};

async fn produce(client: &Client, tube: &str, count: usize) -> Result<(), Box<dyn Error>> {
    for number in 0..count {
        let spec = TaskSpec { payload: format!("task {number}").into(), ..Default::default() };
        let request = PutTasksRequest { tube: tube.into(), tasks: vec![spec], ..Default::default() };
        let answer = client.put(request).await?;
        if let Some(error) = answer.errors.into_iter().find_map(|item| item.error) {
            return Err(format!("task {number} was refused: {}", error.message).into());
        }
        println!("put {}", answer.task_ids[0]);
    }
    Ok(())
}

async fn consume(client: Arc<Client>, tube: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let mut subscription = Subscription::open(client, tube.into(), 10, SESSION_TTR_MS);
    let mut done = 0;
    while done < count {
        let Some(task) = subscription.next(Duration::from_secs(60)).await? else { continue };
        let payload = task.spec.unwrap_or_default().payload;
        println!("took {}, attempt {}: {}", task.id, task.attempt, String::from_utf8_lossy(&payload));
        for error in subscription.acknowledge(vec![task.token]).await?.into_iter().filter_map(|item| item.error) {
            println!("the lease ended before the work: {}", error.message);
        }
        done += 1;
    }
    Ok(subscription.close().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let client = Arc::new(Client::connect()?);
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["conformance"] => conformance::conform(client).await,
        ["produce", tube, count] => produce(&client, tube, count.parse()?).await,
        ["consume", tube, count] => consume(client, tube, count.parse()?).await,
        _ => Err("usage: produce|consume TUBE COUNT, or conformance".into()),
    }
}
