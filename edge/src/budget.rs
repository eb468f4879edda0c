//! A bound for the bytes that unfinished messages hold together.

use std::{cell::Cell, rc::Rc};

/// Bytes that a group of messages may hold together.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    held: Cell<usize>,
}

impl Budget {
    /// Returns a budget that nothing uses.
    #[must_use]
    pub fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self { bytes_max, held: Cell::new(0) })
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.get()
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
        let others = self.budget.held.get() - self.bytes;
        if bytes > self.bytes && others + bytes > self.budget.bytes_max {
            return false;
        }
        self.budget.held.set(others + bytes);
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
        self.budget.held.set(self.budget.held.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_budget_have_a_common_bound() {
        let budget = Budget::new(10);
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
        let (from, to) = (Budget::new(10), Budget::new(4));
        let mut share = Share::of(&from);
        assert!(share.grow_to(5) && !share.move_to(&to));
        assert_eq!((from.held(), to.held()), (5, 0));
        assert!(share.grow_to(4) && share.move_to(&to));
        assert_eq!((from.held(), to.held()), (0, 4));
    }
}
