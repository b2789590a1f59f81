//! The nodes of the index: a tree by keys, in pages.

use hashbrown::{HashMap, HashTable};

use super::{Block, Holder, MAX_NODES, Ranks, Tier};

/// Nodes per page. A vector of nodes would copy them all, and hold twice their bytes, when it grows.
const PAGE: usize = 512;

/// A node's place in the pages.
pub(super) type Slot = u32;

/// The parent of a root, and of a node of which only children are known.
const NO_PARENT: Slot = Slot::MAX;

/// The holder of a node that no endpoint holds.
const NO_HOLDER: u16 = u16::MAX;

/// The holder of a node that several endpoints hold: they are in `shared`.
const SEVERAL: u16 = u16::MAX - 1;

/// A node. A node without holder and children is removed.
#[derive(Clone, Copy, Debug)]
struct PrefixNode {
    /// The bytes of the key: as a number it would make a node four bytes longer.
    key: [u8; 8],
    parent: Slot,
    /// The number of nodes whose parent it is.
    children: u32,
    /// Its bytes; 0 while its parent is not known.
    length: u16,
    /// The length of all its children; 0 if there is none, or they differ: then `branches` has the lengths.
    child_length: u16,
    /// The place of the only endpoint that holds it, [`NO_HOLDER`] or [`SEVERAL`].
    holder: u16,
    /// Its tokens.
    tokens: u16,
    /// The tier in which the only endpoint holds it.
    tier: Tier,
    /// The ranks of the only endpoint that hold it.
    ranks: Ranks,
}

const VACANT: PrefixNode = PrefixNode {
    key: [0; 8],
    parent: NO_PARENT,
    children: 0,
    length: 0,
    child_length: 0,
    holder: NO_HOLDER,
    tokens: 0,
    tier: Tier::Gpu,
    ranks: Ranks(0),
};

/// An endpoint that holds a node, the tier, and its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) holder: Holder,
    pub(super) tier: Tier,
    pub(super) ranks: Ranks,
}

/// A length that children of a node have, and the number of these children.
#[derive(Clone, Copy, Debug)]
struct Branch {
    length: u16,
    children: u32,
}

/// The nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    table: HashTable<Slot>,
    pages: Vec<Box<[PrefixNode; PAGE]>>,
    free: Vec<Slot>,
    /// The holders of nodes that several endpoints hold.
    shared: HashMap<Slot, Vec<Cached>>,
    /// The lengths of the children of nodes whose children have several.
    branches: HashMap<Slot, Vec<Branch>>,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let shared: usize = self.shared.values().map(|copies| copies.capacity() * size_of::<Cached>()).sum();
        let branches: usize = self.branches.values().map(|it| it.capacity() * size_of::<Branch>()).sum();
        self.table.allocation_size()
            + self.pages.len() * (size_of::<[PrefixNode; PAGE]>() + size_of::<usize>())
            + self.free.capacity() * size_of::<Slot>()
            + self.shared.allocation_size()
            + self.branches.allocation_size()
            + shared
            + branches
    }

    /// The node of this key.
    pub(super) fn find(&self, key: u64) -> Option<Slot> {
        self.table.find(key, |&slot| self.key(slot) == key).copied()
    }

    /// The key of a node.
    pub(super) fn key(&self, slot: Slot) -> u64 {
        u64::from_ne_bytes(self.node(slot).key)
    }

    /// The child of a node that has this key.
    pub(super) fn child(&self, parent: Slot, key: u64) -> Option<Slot> {
        self.find(key).filter(|&slot| self.node(slot).parent == parent)
    }

    /// The tokens of a node.
    pub(super) fn tokens(&self, slot: Slot) -> u32 {
        self.node(slot).tokens.into()
    }

    /// Adds the lengths that children of a node have to `lengths`.
    pub(super) fn child_lengths(&self, slot: Slot, lengths: &mut Vec<usize>) {
        let PrefixNode { children, child_length, .. } = *self.node(slot);
        if child_length > 0 {
            lengths.push(child_length.into());
        } else if children > 0 {
            let branches = self.branches.get(&slot).into_iter().flatten();
            lengths.extend(branches.map(|branch| usize::from(branch.length)));
        }
    }

    /// The endpoints that hold a node.
    pub(super) fn copies(&self, slot: Slot) -> impl Iterator<Item = Cached> {
        let PrefixNode { holder, tier, ranks, .. } = *self.node(slot);
        let only = (holder < SEVERAL).then_some(Cached { holder: Holder(holder), tier, ranks });
        let shared = if holder == SEVERAL { self.shared.get(&slot) } else { None };
        only.into_iter().chain(shared.into_iter().flatten().copied())
    }

    pub(super) fn store(&mut self, new: Cached, block: &Block) {
        let length = u16::try_from(block.length).ok().filter(|&length| length > 0);
        let tokens = u16::try_from(block.tokens).ok().filter(|&tokens| tokens > 0);
        let Some((length, tokens)) = length.zip(tokens) else { return };
        let Some(slot) = self.place(block, length) else { return };
        self.node_mut(slot).tokens = tokens;
        let PrefixNode { holder: known, tier: known_tier, ranks: known_ranks, .. } = self.node_mut(slot);
        if *known == NO_HOLDER || *known == new.holder.0 {
            (*known, *known_tier, *known_ranks) = (new.holder.0, new.tier, new.ranks);
        } else if *known == SEVERAL {
            let copies = self.shared.entry(slot).or_default();
            match copies.iter_mut().find(|copy| copy.holder == new.holder) {
                Some(copy) => *copy = new,
                None => copies.push(new),
            }
        } else {
            let first = Cached { holder: Holder(*known), tier: *known_tier, ranks: *known_ranks };
            *known = SEVERAL;
            self.shared.insert(slot, vec![first, new]);
        }
    }

    pub(super) fn remove(&mut self, holder: Holder, key: u64) {
        let Some(slot) = self.find(key) else { return };
        self.retain_copies(slot, |copy| copy.holder != holder);
        self.prune(slot);
    }

    /// Forgets the holders for which `is_gone` is true.
    pub(super) fn forget(&mut self, is_gone: impl Fn(Holder) -> bool) {
        let slots: Vec<Slot> = self.table.iter().copied().collect();
        for slot in slots {
            self.retain_copies(slot, |copy| !is_gone(copy.holder));
        }
        // Children keep their parents, so the nodes that are left over are found from their leaves.
        let leaves: Vec<Slot> = self.table.iter().copied().filter(|&slot| self.is_over(slot)).collect();
        for slot in leaves {
            self.prune(slot);
        }
    }

    /// The node of a block. `None`: it contradicts the block, or there are too many nodes.
    fn place(&mut self, block: &Block, length: u16) -> Option<Slot> {
        if block.key == block.parent {
            return None;
        }
        let known = self.find(block.key);
        if let Some(slot) = known
            && self.node(slot).parent != NO_PARENT
        {
            let PrefixNode { parent, length: known, .. } = *self.node(slot);
            return (self.key(parent) == block.parent && known == length).then_some(slot);
        }
        let missing = usize::from(known.is_none()) + usize::from(self.find(block.parent).is_none());
        if self.len() + missing > MAX_NODES {
            return None;
        }
        let parent = self.find_or_make(block.parent);
        let slot = self.find_or_make(block.key);
        let node = self.node_mut(slot);
        (node.parent, node.length) = (parent, length);
        self.add_child(parent, length);
        Some(slot)
    }

    fn find_or_make(&mut self, key: u64) -> Slot {
        if let Some(known) = self.find(key) {
            return known;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            let first = self.pages.len() * PAGE;
            self.pages.push(Box::new([VACANT; PAGE]));
            // In reverse, so that the first is taken first. `MAX_NODES` keeps the slots below 2³².
            self.free.extend((first + 1..first + PAGE).rev().filter_map(|slot| Slot::try_from(slot).ok()));
            Slot::try_from(first).unwrap_or(NO_PARENT)
        });
        *self.node_mut(slot) = PrefixNode { key: key.to_ne_bytes(), ..VACANT };
        let Self { table, pages, .. } = self;
        table.insert_unique(key, slot, |&slot| u64::from_ne_bytes(node_in(pages, slot).key));
        slot
    }

    fn add_child(&mut self, parent: Slot, length: u16) {
        let PrefixNode { children, child_length, .. } = self.node_mut(parent);
        let (before, only) = (*children, *child_length);
        *children += 1;
        if before == 0 {
            *child_length = length;
        } else if only == 0 {
            let branches = self.branches.entry(parent).or_default();
            match branches.iter_mut().find(|branch| branch.length == length) {
                Some(branch) => branch.children += 1,
                None => branches.push(Branch { length, children: 1 }),
            }
        } else if only != length {
            *child_length = 0;
            let branches = vec![Branch { length: only, children: before }, Branch { length, children: 1 }];
            self.branches.insert(parent, branches);
        }
    }

    fn drop_child(&mut self, parent: Slot, length: u16) {
        let node = self.node_mut(parent);
        node.children = node.children.saturating_sub(1);
        let is_last = node.children == 0;
        let mut only = if is_last { 0 } else { node.child_length };
        if node.child_length == 0
            && let Some(branches) = self.branches.get_mut(&parent)
        {
            if let Some(branch) = branches.iter_mut().find(|branch| branch.length == length) {
                branch.children = branch.children.saturating_sub(1);
            }
            branches.retain(|branch| branch.children > 0);
            if let [last] = branches[..] {
                only = last.length;
            }
            if branches.len() < 2 {
                self.branches.remove(&parent);
            }
        }
        self.node_mut(parent).child_length = only;
    }

    /// Keeps the endpoints that hold a node for which `keep` is true.
    fn retain_copies(&mut self, slot: Slot, keep: impl Fn(&Cached) -> bool) {
        let PrefixNode { holder, tier, ranks, .. } = *self.node(slot);
        if holder == SEVERAL {
            let Some(copies) = self.shared.get_mut(&slot) else { return };
            copies.retain(keep);
            let left = match copies[..] {
                [] => (NO_HOLDER, tier, ranks),
                [only] => (only.holder.0, only.tier, only.ranks),
                _ => return,
            };
            self.shared.remove(&slot);
            let node = self.node_mut(slot);
            (node.holder, node.tier, node.ranks) = left;
        } else if holder != NO_HOLDER && !keep(&Cached { holder: Holder(holder), tier, ranks }) {
            self.node_mut(slot).holder = NO_HOLDER;
        }
    }

    /// Removes a node without holder and children, and so its parent if that has none either.
    fn prune(&mut self, mut slot: Slot) {
        while self.is_over(slot) {
            let PrefixNode { key, parent, length, .. } = *self.node(slot);
            let Self { table, pages, .. } = self;
            if let Ok(entry) =
                table.find_entry(u64::from_ne_bytes(key), |&slot| node_in(pages, slot).key == key)
            {
                entry.remove();
            }
            self.free.push(slot);
            if parent == NO_PARENT {
                return;
            }
            self.drop_child(parent, length);
            slot = parent;
        }
    }

    fn is_over(&self, slot: Slot) -> bool {
        let node = self.node(slot);
        node.holder == NO_HOLDER && node.children == 0
    }

    fn node(&self, slot: Slot) -> &PrefixNode {
        node_in(&self.pages, slot)
    }

    #[expect(clippy::indexing_slicing, reason = "only `find_or_make` makes slots, with their page")]
    fn node_mut(&mut self, slot: Slot) -> &mut PrefixNode {
        &mut self.pages[slot as usize / PAGE][slot as usize % PAGE]
    }
}

#[expect(clippy::indexing_slicing, reason = "only `find_or_make` makes slots, with their page")]
fn node_in(pages: &[Box<[PrefixNode; PAGE]>], slot: Slot) -> &PrefixNode {
    &pages[slot as usize / PAGE][slot as usize % PAGE]
}
