//! A bound for the bytes that unfinished messages hold together.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Bytes that a group of messages may hold together.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    held: Arc<AtomicUsize>,
}

impl Budget {
    /// Returns a budget that nothing uses; `held` shows the bytes in use to other threads.
    #[must_use]
    pub fn new(bytes_max: usize, held: Arc<AtomicUsize>) -> Rc<Self> {
        Rc::new(Self { bytes_max, held })
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }
}

/// The budgets of a server.
#[derive(Debug)]
pub struct Budgets {
    /// For the messages of unknown clients that no handler has demanded.
    pub unknown: Rc<Budget>,
    /// For the small messages of known clients.
    pub small: Rc<Budget>,
    /// For messages that a handler has demanded.
    pub large: Rc<Budget>,
}

/// The part of a budget that one message holds; freed when dropped.
#[derive(Debug)]
pub struct Share {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Share {
    /// Returns an empty share of a budget.
    #[must_use]
    pub fn of(budget: &Rc<Budget>) -> Self {
        Self { budget: Rc::clone(budget), bytes: 0 }
    }

    /// Counts the present size of a message in a budget, and in no other budget any more.
    ///
    /// Returns false, and changes nothing, if the budget has no room.
    #[must_use]
    pub fn hold(&mut self, budget: &Rc<Budget>, bytes: usize) -> bool {
        if Rc::ptr_eq(&self.budget, budget) {
            return self.resize(bytes);
        }
        let mut moved = Self::of(budget);
        let has_room = moved.resize(bytes);
        if has_room {
            *self = moved;
        }
        has_room
    }

    fn resize(&mut self, bytes: usize) -> bool {
        let others = self.budget.held() - self.bytes;
        if bytes > self.bytes && others + bytes > self.budget.bytes_max {
            return false;
        }
        self.budget.held.store(others + bytes, Relaxed);
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.store(self.budget.held() - self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_budget_have_a_common_bound() {
        let budget = Budget::new(10, Arc::default());
        let (mut first, mut second) = (Share::of(&budget), Share::of(&budget));
        assert!(first.hold(&budget, 6) && second.hold(&budget, 4));
        assert!(!second.hold(&budget, 5));
        assert_eq!(budget.held(), 10);
        drop(first);
        assert!(second.hold(&budget, 5));
        assert_eq!(budget.held(), 5);
    }

    #[test]
    fn a_share_moves_to_another_budget_with_room() {
        let (from, to) = (Budget::new(10, Arc::default()), Budget::new(4, Arc::default()));
        let mut share = Share::of(&from);
        assert!(share.hold(&from, 5) && !share.hold(&to, 5));
        assert_eq!((from.held(), to.held()), (5, 0));
        assert!(share.hold(&to, 4));
        assert_eq!((from.held(), to.held()), (0, 4));
    }
}
