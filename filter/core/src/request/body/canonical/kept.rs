//! The beginning of a JSON text whose objects have their members in order.

use core::cmp::Ordering;
use core::mem;
use core::ops::Range;

use crate::json::Name;
use crate::request::body::json_text;

/// Maximum number of members of all open objects together.
const MAX_MEMBERS: usize = 8_192;

/// Maximum memory of the members that may still change places, as a multiple of the kept part of the text.
const MAX_BUFFER_RATIO: usize = 4;

/// An object with less than this in its buffer is not put in order before its end.
const MIN_BUFFER: usize = 4_096;

/// Places for the indices of recent members, by their names.
const RECENT: usize = 32;

/// The beginning of a JSON text that is being written, whose objects have their members in order.
///
/// The kept part is always a beginning of the whole text: after a part that is cut, nothing more is kept. Two
/// bounds hold for the memory: for the bytes of all members that may still change places, and for their
/// number. At a bound, the members that come last in order are left out, and the text is cut where they would
/// begin.
pub(super) struct Kept<'a> {
    bytes: Vec<u8>,
    /// Limit of the text up to the end of the value that is being written.
    end: usize,
    /// Limit of the whole buffer.
    max: usize,
    /// The members of the objects that are open, outermost first.
    members: Vec<KeptMember<'a>>,
    /// At the place of a name: the index at which a member with a name of this place was put last. Members
    /// change places and leave, so the name at the index has to be compared.
    recent: [usize; RECENT],
    /// The memory in which an object is put in order.
    ordered: Vec<u8>,
}

/// One member of an object in the buffer.
struct KeptMember<'a> {
    name: Ordered<'a>,
    kept: Range<usize>,
    /// Its whole length.
    bytes: u64,
}

/// Bytes of a name that are compared as a number.
const FIRST: usize = size_of::<u64>();

/// A name that is compared fast: in a hostile body every fifth byte may begin a member.
#[derive(Clone)]
struct Ordered<'a> {
    /// The first bytes, and zeros behind a shorter name, as a number that has their order.
    first: u64,
    name: Name<'a>,
}

impl<'a> Ordered<'a> {
    fn new(name: Name<'a>) -> Self {
        let bytes = name.as_bytes();
        let first = match bytes.first_chunk() {
            Some(first) => u64::from_be_bytes(*first),
            // The shift moves zeros behind the bytes.
            None => {
                bytes.iter().rev().fold(0, |first, &byte| first >> 8 | u64::from(byte) << (u64::BITS - 8))
            }
        };
        Self { first, name }
    }

    /// Its place among [`RECENT`] ones, by Fibonacci hashing (Knuth, The Art of Computer Programming 6.4).
    #[expect(clippy::cast_possible_truncation, reason = "no more bits than a place has are left")]
    fn place(&self) -> usize {
        const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.first.wrapping_mul(GOLDEN_RATIO) >> (u64::BITS - RECENT.ilog2())) as usize
    }
}

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered<'_> {}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.first.cmp(&other.first).then_with(|| {
            let (name, other) = (self.name.as_bytes(), other.name.as_bytes());
            // Equal numbers of short names differ in zeros at the end: the shorter name precedes.
            if name.len().max(other.len()) <= FIRST { name.len().cmp(&other.len()) } else { name.cmp(other) }
        })
    }
}

impl KeptMember<'_> {
    fn is_cut(&self) -> bool {
        (self.kept.len() as u64) < self.bytes
    }
}

/// An object whose members are being written.
pub(super) struct Open<'a> {
    /// The offset of the object in the buffer.
    start: usize,
    /// The offset behind which nothing of the object is kept.
    end: usize,
    /// The index of its first member in the list of members.
    first: usize,
    is_sorted: bool,
    /// The smallest name of a member that was left out: it and greater names are not written.
    left_out: Option<Ordered<'a>>,
    length: u64,
}

/// A member whose value is written next.
pub(super) struct Begun<'a> {
    /// The name, if the member is kept.
    name: Option<Ordered<'a>>,
    from: usize,
    bytes: u64,
}

impl Begun<'_> {
    pub(super) fn is_kept(&self) -> bool {
        self.name.is_some()
    }
}

impl<'a> Kept<'a> {
    /// A text of which `limit` bytes will be kept.
    pub(super) fn new(limit: usize) -> Self {
        let max = limit.saturating_mul(MAX_BUFFER_RATIO).saturating_add(MIN_BUFFER);
        Self {
            bytes: Vec::new(),
            end: limit,
            max,
            members: Vec::new(),
            recent: [0; RECENT],
            ordered: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing more is kept of the value that is being written.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= self.end
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Appends the part of `bytes` for which there is room; returns the length of all of `bytes`.
    pub(super) fn put(&mut self, bytes: &[u8]) -> u64 {
        json_text::push_up_to(&mut self.bytes, self.end, bytes)
    }

    /// Appends a string with its quotes, as `put` does.
    pub(super) fn string(&mut self, text: &[u8]) -> u64 {
        json_text::push_string_up_to(&mut self.bytes, self.end, text)
    }

    pub(super) fn open_object(&mut self) -> Open<'a> {
        let (start, end) = (self.bytes.len(), self.end);
        let length = self.put(b"{");
        Open { start, end, first: self.members.len(), is_sorted: true, left_out: None, length }
    }

    #[inline]
    pub(super) fn begin_member(&mut self, open: &mut Open<'a>, name: Name<'a>) -> Begun<'a> {
        let name = Ordered::new(name);
        let room = open.room();
        // A member behind one that was left out would leave a gap in the kept part.
        let mut is_kept = room > 0 && open.left_out.as_ref().is_none_or(|least| name < *least);
        if is_kept && self.members.len() >= MAX_MEMBERS {
            is_kept = self.make_room(open, &name);
        }
        // The comma is not part of the member's range, because members may change places.
        if is_kept && open.length > 1 {
            self.bytes.push(b',');
        }
        let from = self.bytes.len();
        // Each member has the room of the whole object, because it may become the first in order.
        self.end = if is_kept { from.saturating_add(room).min(self.max.max(from)) } else { from };
        let bytes = self.string(name.name.as_bytes()) + self.put(b":");
        Begun { name: is_kept.then_some(name), from, bytes }
    }

    #[inline]
    pub(super) fn end_member(
        &mut self,
        open: &mut Open<'a>,
        Begun { name, from, bytes }: Begun<'a>,
        value: u64,
    ) {
        let total = bytes + value;
        // Each member has one byte more: a comma, or the closing brace after the last.
        open.length += total + 1;
        let Some(name) = name else { return };
        let kept = from..self.bytes.len();
        let members = self.members.get_mut(open.first..).unwrap_or_default();
        // Behind a member that is cut, only an earlier name can still be kept: then the object has to be put
        // in order.
        open.is_sorted &= members.last().is_none_or(|last| last.name < name && !last.is_cut());
        let member = KeptMember { name, kept, bytes: total };
        if let Some(recent) = self.recent.get_mut(member.name.place()) {
            // The last of equal keys counts. Those that are not found here are found when the members are
            // sorted.
            let before = recent.checked_sub(open.first).and_then(|at| members.get_mut(at));
            if let Some(before) = before.filter(|before| before.name == member.name) {
                open.length -= before.bytes + 1;
                *before = member;
                open.is_sorted = false;
                self.keep_within_buffer(open);
                return;
            }
            *recent = self.members.len();
        }
        self.members.push(member);
        self.keep_within_buffer(open);
    }

    /// Makes room when members behind the kept part take most of the buffer.
    fn keep_within_buffer(&mut self, open: &mut Open<'a>) {
        let buffer = self.bytes.len() - open.start;
        if buffer > MIN_BUFFER && buffer / 2 > open.room() {
            self.put_in_order(open);
        }
    }

    /// Returns the length of the whole object.
    pub(super) fn close_object(&mut self, mut open: Open<'a>) -> u64 {
        if open.length == 1 {
            self.end = open.end;
            // Every member adds to the length, so this object is empty.
            return 1 + self.put(b"}");
        }
        let last_is_cut =
            self.members.get(open.first..).and_then(<[_]>::last).is_some_and(KeptMember::is_cut);
        let is_cut = if open.is_sorted && open.left_out.is_none() {
            last_is_cut
        } else {
            self.put_in_order(&mut open) || open.left_out.is_some()
        };
        self.members.truncate(open.first);
        // Nothing may follow a part that is cut: the kept part is a beginning of the text.
        self.end = if is_cut { self.bytes.len().min(open.end) } else { open.end };
        if !is_cut {
            self.put(b"}");
        }
        // Together, the members may have taken more than the room that each of them had.
        self.bytes.truncate(open.end.max(open.start));
        open.length
    }

    /// Leaves members out until there is room for one called `name`; returns whether it can be kept.
    fn make_room(&mut self, open: &mut Open<'a>, name: &Ordered<'a>) -> bool {
        // Sorting is amortized only over many members of this object: if other objects hold most of the
        // places, its next member is left out instead.
        if self.members.len() - open.first >= MAX_MEMBERS / 2 {
            self.sort(open);
            let half = open.first + MAX_MEMBERS / 4;
            self.leave_out_from(open, half);
        } else {
            open.left_out = Some(name.clone());
        }
        open.left_out.as_ref().is_none_or(|least| name < least)
    }

    fn leave_out_from(&mut self, open: &mut Open<'a>, first: usize) {
        if first < self.members.len()
            && let Some(member) = self.members.drain(first..).next()
        {
            open.left_out = Some(member.name);
        }
    }

    /// Sorts the object's members and drops all but the last of equal ones.
    fn sort(&mut self, open: &mut Open<'a>) {
        open.is_sorted = false;
        // A stable sort keeps equal keys in their order.
        let members = self.members.get_mut(open.first..).unwrap_or_default();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let mut kept = 0;
        for at in 0..members.len() {
            match members.get(at..) {
                Some([this, next, ..]) if this.name == next.name => open.length -= this.bytes + 1,
                _ => {
                    if kept < at {
                        members.swap(kept, at);
                    }
                    kept += 1;
                }
            }
        }
        self.members.truncate(open.first + kept);
    }

    /// Writes the object's members in order, as far as they are kept; returns whether the last of them is
    /// cut.
    fn put_in_order(&mut self, open: &mut Open<'a>) -> bool {
        self.sort(open);
        let room = open.room();
        let mut object = mem::take(&mut self.ordered);
        object.clear();
        object.reserve((self.bytes.len() - open.start).min(room.saturating_mul(2)));
        let mut written = open.first;
        let mut is_cut = false;
        for member in self.members.get_mut(open.first..).unwrap_or_default() {
            if is_cut || object.len() >= room {
                break;
            }
            object.push(if object.is_empty() { b'{' } else { b',' });
            // The new offsets hold after `object` is copied to its place, and the old ones until then.
            let from = open.start + object.len();
            object.extend_from_slice(self.bytes.get(member.kept.clone()).unwrap_or_default());
            member.kept = from..open.start + object.len();
            is_cut = member.is_cut();
            written += 1;
        }
        self.leave_out_from(open, written);
        self.bytes.truncate(open.start);
        self.bytes.extend_from_slice(&object);
        self.ordered = object;
        is_cut
    }
}

impl Open<'_> {
    fn room(&self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn names_have_the_order_of_their_bytes() {
        let names = [
            "",
            "\0",
            "\0\0",
            "a",
            "a\0",
            "aa",
            "abcdefg",
            "abcdefg\0",
            "abcdefgh",
            "abcdefgh\0",
            "abcdefgi",
            "é",
            "éé",
        ];
        for name in names {
            for other in names {
                let [a, b] = [name, other].map(|name| Ordered::new(Name::copy(name)));
                assert_eq!((a.cmp(&b), a == b), (name.cmp(other), name == other), "{name:?} {other:?}");
            }
        }
    }
}
