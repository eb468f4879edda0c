//! Work of the thread whose panic is reported to Python.
//!
//! A panic is a bug of the edge. tokio keeps a panic inside its task, so without the report a call
//! would wait for ever, or the thread would serve no further call, and no part of the node would
//! know. The node stops when it gets the report.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::task::{JoinHandle, spawn_local};

use crate::{
    exchange::{Event, Exchange},
    server::Shared,
};

/// Starts a task on this thread; a panic ends the task with the event [`Event::Failed`].
pub fn spawn(shared: &Arc<Shared>, work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    spawn_local(Watched { shared: Arc::clone(shared), work: Box::pin(work) })
}

/// Runs a function; a panic ends the function with the event [`Event::Failed`].
pub fn run(exchange: &Exchange, work: impl FnOnce()) {
    let _ = watch(exchange, work);
}

struct Watched<F> {
    shared: Arc<Shared>,
    work: Pin<Box<F>>,
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context) -> Poll<()> {
        let this = self.get_mut();
        watch(&this.shared.exchange, || this.work.as_mut().poll(context)).unwrap_or(Poll::Ready(()))
    }
}

/// Returns the result of a function; `None` after a panic.
fn watch<T>(exchange: &Exchange, work: impl FnOnce() -> T) -> Option<T> {
    // After a panic, no part of the thread relies on a complete state, because the node stops.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| exchange.announce(Event::Failed(text_of(panic.as_ref())))).ok()
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text").to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    fn reported(shared: &Shared) -> Vec<String> {
        let events = shared.exchange.take_events().into_iter();
        events.map(|event| if let Event::Failed(text) = event { text } else { panic!("{event:?}") }).collect()
    }

    #[tokio::test]
    async fn a_panic_in_a_task_is_reported() {
        let shared = Shared::new().unwrap();
        let work = async {
            tokio::task::yield_now().await;
            panic!("broken rule {}", 7);
        };
        LocalSet::new().run_until(async { spawn(&shared, work).await }).await.unwrap();
        assert_eq!(reported(&shared), ["broken rule 7"]);
    }

    #[test]
    fn a_panic_in_a_function_is_reported() {
        let shared = Shared::new().unwrap();
        run(&shared.exchange, || panic!("broken rule"));
        run(&shared.exchange, || ());
        assert_eq!(reported(&shared), ["broken rule"]);
    }
}
