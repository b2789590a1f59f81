//! Clients of every kind at a steady rate, for what has to go on for long: [`chaos`](crate::chaos) and [`soak`](crate::soak).

mod load;
mod shot;

pub(crate) use load::{Failure, Load, Tally};
pub(crate) use shot::{ID, Range, Trouble};
