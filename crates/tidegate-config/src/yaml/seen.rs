//! Which keys a map already has: a hash table of token numbers, because a million keys may not cost 50 bytes each.

use std::hash::{BuildHasher, RandomState};

use super::tree::{Node, Tree};

pub(crate) struct Seen<'t> {
    tree: &'t Tree,
    /// Where keys stand, by the hash of their text; [`FREE`] if nothing is there.
    slots: Vec<u32>,
    free: usize,
    hasher: RandomState,
}

const FREE: u32 = u32::MAX;

impl<'t> Seen<'t> {
    /// For so many keys of one tree.
    pub(crate) fn new(tree: &'t Tree, keys: usize) -> Self {
        // A fifth stays free, so that searches end soon.
        let slots = (keys + keys / 4 + 1).next_power_of_two();
        Self { tree, slots: vec![FREE; slots], free: slots, hasher: RandomState::new() }
    }

    /// The key of the same text that came before, if there is one; otherwise this one is remembered.
    pub(crate) fn before(&mut self, key: Node<'t>) -> Option<Node<'t>> {
        let text = key.text()?;
        let slot = self.slot(text);
        match self.slots[slot] {
            // One slot is never taken: it ends every search.
            FREE if self.free > 1 => {
                self.slots[slot] = key.at();
                self.free -= 1;
                None
            }
            FREE => None,
            at => Some(self.tree.node(at)),
        }
    }

    /// Was a key of this text remembered?
    pub(crate) fn has(&self, text: &str) -> bool {
        self.slots[self.slot(text)] != FREE
    }

    /// Where a key of this text is, or would be.
    fn slot(&self, text: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(text) as usize & mask;
        while self.slots[slot] != FREE && self.tree.node(self.slots[slot]).text() != Some(text) {
            slot = (slot + 1) & mask;
        }
        slot
    }
}
