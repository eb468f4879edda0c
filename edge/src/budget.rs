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

    /// Makes the share as large as a message is now; returns false if the budget has no room.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let others = self.budget.held() - self.bytes;
        if bytes > self.bytes && others + bytes > self.budget.bytes_max {
            return false;
        }
        self.budget.held.store(others + bytes, Relaxed);
        self.bytes = bytes;
        true
    }

    /// Moves the share to another budget; returns false, and changes nothing, without room there.
    #[must_use]
    pub fn move_to(&mut self, budget: &Rc<Budget>) -> bool {
        let mut moved = Self::of(budget);
        let has_room = moved.grow_to(self.bytes);
        if has_room {
            *self = moved;
        }
        has_room
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
        assert!(first.grow_to(6) && second.grow_to(4));
        assert!(!second.grow_to(5));
        assert_eq!(budget.held(), 10);
        drop(first);
        assert!(second.grow_to(5));
        assert_eq!(budget.held(), 5);
    }

    #[test]
    fn a_share_moves_to_another_budget_with_room() {
        let (from, to) = (Budget::new(10, Arc::default()), Budget::new(4, Arc::default()));
        let mut share = Share::of(&from);
        assert!(share.grow_to(5) && !share.move_to(&to));
        assert_eq!((from.held(), to.held()), (5, 0));
        assert!(share.grow_to(4) && share.move_to(&to));
        assert_eq!((from.held(), to.held()), (0, 4));
    }
}
