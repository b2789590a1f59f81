//! The part of the endpoints' costs that no request changes, in columns: arrays by endpoint, over which a
//! decision is one loop.

use core::ops::Range;
use core::time::Duration;

use super::EndpointState;
use crate::pool::reading::Reading;

/// Maximum number of requests that a reading counts as: what is learnt from larger ones would be rounding
/// errors.
const MAX_REQUESTS: f64 = 1e4;

/// Share of the KV cache from which requests wait for memory. The caches of running requests grow until the
/// next reading, so that a cache counts as full before it is.
const KV_FROM: f64 = 0.95;

/// Maximum time between the origin of rows and a reading, 52 days: whole nanoseconds are exact, also the
/// difference of two times on both sides of the origin.
const MAX_FROM_ORIGIN: Duration = Duration::from_nanos(1 << 52);

/// The part of an endpoint's cost that no request changes. A value that is not known is the number with which
/// the cost is the same as without the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CostRow {
    /// Requests at the server by its reading, less the requests that were in flight when the reading arrived.
    pub(crate) shown: f64,
    /// 1 if the requests in flight add to these; 0 if it is not known how many were in flight.
    pub(crate) since: f64,
    /// Requests that wait at the server by its reading and are not known here.
    pub(crate) waiting: f64,
    /// The time of the reading. Times are nanoseconds after an origin of all rows.
    pub(crate) taken: f64,
    /// Share of the KV cache in use above the share from which requests wait for memory.
    pub(crate) above: f64,
    /// Tokens of the KV cache.
    pub(crate) memory: f64,
    /// Tokens of the prompts in flight more than when the reading arrived.
    pub(crate) context: f64,
    /// When the endpoint last sent a first output, or got a request while it had none to read.
    pub(crate) reads_since: f64,
    /// The factor of the endpoint's times. Where other proxies send requests too, a part of its load is not
    /// known here when it counts, and would pass for slowness.
    pub(crate) speed: f64,
}

impl CostRow {
    /// The row of an endpoint with this reading and state.
    fn of(reading: &Reading, state: &EndpointState, row_context: &RowContext) -> Self {
        let at_reading = reading.waiting.unwrap_or(0) as f64 + reading.running.unwrap_or(0) as f64;
        let then = state.at_reading();
        let waiting = match (reading.waiting, then) {
            (Some(waiting), Some(then)) => (waiting as f64 - then.unanswered).max(0.0),
            _ => 0.0,
        };
        let StatePart { context, reads_since, speed } = StatePart::of(state, row_context);
        Self {
            shown: at_reading.min(MAX_REQUESTS) - then.map_or(0.0, |then| then.requests),
            since: if then.is_some() { 1.0 } else { 0.0 },
            waiting,
            // Without a time the reading counts as new.
            taken: reading.updated.map_or(f64::INFINITY, |taken| row_context.nanoseconds(taken)),
            above: reading.kv_usage.map_or(f64::NEG_INFINITY, |usage| usage - KV_FROM),
            memory: reading.kv_tokens().map_or(f64::INFINITY, |tokens| tokens as f64),
            context,
            reads_since,
            speed,
        }
    }
}

/// The fields of a row that change with requests.
struct StatePart {
    context: f64,
    reads_since: f64,
    speed: f64,
}

impl StatePart {
    fn of(state: &EndpointState, row_context: &RowContext) -> Self {
        Self {
            context: state.at_reading().map_or(0.0, |then| state.context() as f64 - then.context),
            reads_since: row_context.nanoseconds(state.reads_since()),
            speed: if row_context.is_one_of_several { 1.0 } else { state.speed() },
        }
    }
}

/// The values that all rows have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RowContext {
    /// The time from which rows count. It stays, so that rows stay whose readings do.
    origin: Duration,
    /// Whether other proxies send requests to the endpoints.
    is_one_of_several: bool,
}

impl RowContext {
    /// The context of rows whose newest reading is of this time, if it has one.
    fn next(self, newest: Option<Duration>, is_one_of_several: bool) -> Self {
        let far = newest.filter(|newest| newest.abs_diff(self.origin) > MAX_FROM_ORIGIN);
        Self { origin: far.unwrap_or(self.origin), is_one_of_several }
    }

    fn nanoseconds(&self, at: Duration) -> f64 {
        let seconds = at.as_secs().wrapping_sub(self.origin.as_secs()).cast_signed();
        seconds as f64 * 1e9 + (f64::from(at.subsec_nanos()) - f64::from(self.origin.subsec_nanos()))
    }
}

/// The rows of all endpoints by their newest readings, a column for each field of [`CostRow`].
#[derive(Debug, Default)]
pub(crate) struct CostColumns {
    columns: Columns<Vec<f64>>,
    context: RowContext,
}

/// The rows of endpoints that follow each other in the pool.
pub(crate) type CostRows<'a> = Columns<&'a [f64]>;

/// A column for each field of [`CostRow`].
#[derive(Debug, Default)]
pub(crate) struct Columns<Column> {
    shown: Column,
    since: Column,
    waiting: Column,
    taken: Column,
    above: Column,
    memory: Column,
    context: Column,
    reads_since: Column,
    speed: Column,
}

impl Columns<Vec<f64>> {
    fn all(&mut self) -> [&mut Vec<f64>; 9] {
        let Self { shown, since, waiting, taken, above, memory, context, reads_since, speed } = self;
        [shown, since, waiting, taken, above, memory, context, reads_since, speed]
    }
}

impl CostRows<'_> {
    /// The row of the endpoint at this place.
    #[expect(clippy::inline_always, reason = "the loops that call it are vectorized only without a call")]
    #[inline(always)]
    pub(crate) fn row(&self, at: usize) -> CostRow {
        CostRow {
            shown: self.shown[at],
            since: self.since[at],
            waiting: self.waiting[at],
            taken: self.taken[at],
            above: self.above[at],
            memory: self.memory[at],
            context: self.context[at],
            reads_since: self.reads_since[at],
            speed: self.speed[at],
        }
    }
}

impl CostColumns {
    /// The number of endpoints with a row; 0 between a change of the pool and the next readings.
    pub(crate) fn len(&self) -> usize {
        self.columns.shown.len()
    }

    /// A time as rows have it.
    pub(crate) fn nanoseconds(&self, at: Duration) -> f64 {
        self.context.nanoseconds(at)
    }

    /// The row of an endpoint with this reading and state, as it is in the columns when it is set.
    pub(super) fn row_of(&self, reading: &Reading, state: &EndpointState) -> CostRow {
        CostRow::of(reading, state, &self.context)
    }

    /// The row of an endpoint.
    pub(crate) fn row(&self, endpoint: usize) -> Option<CostRow> {
        Some(self.rows(endpoint..endpoint + 1)?.row(0))
    }

    /// The rows of these endpoints; `None`: some have none.
    #[inline]
    pub(crate) fn rows(&self, endpoints: Range<usize>) -> Option<CostRows<'_>> {
        let Columns { shown, since, waiting, taken, above, memory, context, reads_since, speed } =
            &self.columns;
        Some(Columns {
            shown: shown.get(endpoints.clone())?,
            since: since.get(endpoints.clone())?,
            waiting: waiting.get(endpoints.clone())?,
            taken: taken.get(endpoints.clone())?,
            above: above.get(endpoints.clone())?,
            memory: memory.get(endpoints.clone())?,
            context: context.get(endpoints.clone())?,
            reads_since: reads_since.get(endpoints.clone())?,
            speed: speed.get(endpoints)?,
        })
    }

    /// Takes in the context of this many readings, the newest of which is of this time. Returns whether all
    /// rows have to be [set](Self::set), and not only those of changed readings.
    pub(super) fn begin(
        &mut self,
        endpoints: usize,
        newest: Option<Duration>,
        is_one_of_several: bool,
    ) -> bool {
        let context = self.context.next(newest, is_one_of_several);
        let is_other = self.len() != endpoints || self.context != context;
        self.context = context;
        self.columns.all().into_iter().for_each(|column| column.resize(endpoints, 0.0));
        is_other
    }

    /// Takes in the newest reading of an endpoint that has a row, with its state.
    pub(super) fn set(&mut self, endpoint: usize, reading: &Reading, state: &EndpointState) {
        let row = CostRow::of(reading, state, &self.context);
        let CostRow { shown, since, waiting, taken, above, memory, context, reads_since, speed } = row;
        let values = [shown, since, waiting, taken, above, memory, context, reads_since, speed];
        self.columns.all().into_iter().zip(values).for_each(|(column, value)| column[endpoint] = value);
    }

    /// Takes in the state of an endpoint after a change.
    pub(super) fn update(&mut self, endpoint: usize, state: &EndpointState) {
        let part = StatePart::of(state, &self.context);
        let Columns { context, reads_since, speed, .. } = &mut self.columns;
        for (column, value) in [(context, part.context), (reads_since, part.reads_since), (speed, part.speed)]
        {
            if let Some(slot) = column.get_mut(endpoint) {
                *slot = value;
            }
        }
    }

    /// Drops all rows: endpoints have other places from now on.
    pub(super) fn clear(&mut self) {
        self.columns = Columns::default();
    }
}
