//! The times at which the newest places of a log were written.

use core::time::Duration;
use std::collections::VecDeque;

/// Steps of the time for which additions are remembered.
const STEPS: u32 = 16;

/// Numbers of places that were written to a log in the recent past, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Additions(VecDeque<TimeStep>);

/// The places that were written in one step of time.
#[derive(Clone, Copy, Debug)]
struct TimeStep {
    /// Its beginning.
    at: Duration,
    places: usize,
}

impl Additions {
    /// Adds places that are written at this time. Older steps than `recent` are forgotten.
    pub(super) fn note(&mut self, at: Duration, places: usize, recent: Duration) {
        if recent.is_zero() {
            return;
        }
        while self.0.front().is_some_and(|step| step.at + recent < at) {
            self.0.pop_front();
        }
        // A change of another proxy may arrive behind later ones; the steps stay in order.
        match self.0.back_mut().filter(|step| at < step.at + recent / STEPS) {
            Some(step) => step.places += places,
            None => self.0.push_back(TimeStep { at, places }),
        }
    }

    /// The number of places from the log's end back to the first that was written since this time.
    pub(super) fn since(&self, since: Duration) -> usize {
        self.0.iter().rev().take_while(|step| step.at >= since).map(|step| step.places).sum()
    }

    /// Counts again for a log from which vacant places are removed.
    pub(super) fn compacting(&self) -> Compacting {
        let behind = self.0.iter().map(|step| step.places).sum();
        let empty = self.0.iter().map(|step| TimeStep { places: 0, ..*step }).collect();
        Compacting { old: self.clone(), behind, at: 0, new: Self(empty) }
    }
}

/// The count of the places of a log that are not vacant.
pub(super) struct Compacting {
    old: Additions,
    /// Places from the log's end back to the beginning of the step at `at`.
    behind: usize,
    at: usize,
    new: Additions,
}

impl Compacting {
    /// Adds a run of this number of blocks that begins `behind` places before the log's end. Runs come oldest
    /// first.
    pub(super) fn keep(&mut self, behind: usize, blocks: usize) {
        while let Some(step) = self.old.0.get(self.at)
            && behind <= self.behind - step.places
        {
            self.behind -= step.places;
            self.at += 1;
        }
        if behind <= self.behind
            && let Some(step) = self.new.0.get_mut(self.at)
        {
            step.places += blocks;
        }
    }

    pub(super) fn finish(self) -> Additions {
        self.new
    }
}
