//! Lists that nearly always have one item.

use smallvec::SmallVec;

/// A list that nearly always has one item, which then takes no allocation.
pub type Few<T> = SmallVec<[T; 1]>;
