//! Servers fitted to a record: how long they read prompts and make tokens, and how much they cache.
//!
//! The coefficients of [the model](ServiceTimes) are found by least squares in the first part of the record,
//! and their errors are those in the rest:
//!
//! - *decoding*: the time from the first token to the end is a sum of steps, of the requests that decode at
//!   the same server, of their context and of the prompts that the server reads meanwhile;
//! - *prefill*: the time to the first token of a request that waits alone is the step in flight, its own
//!   step, and its unread tokens, each of which takes longer behind a long context.
//!
//! Where decoding is not slower while prompts are read, they are read
//! [apart](ServiceTimes::reads_apart) from it.
//!
//! All servers have the same coefficients, and each has its own speed, the median of its times as parts of
//! the predicted ones.

mod caches;
mod least_squares;
mod observed;

use self::least_squares::{Equation, solve};
use self::observed::{Observed, observed};
use crate::record::Record;
use crate::simulation::fleet::{Fleet, ServerKind};
use metrics_agent_server_model::{Allocation, BLOCK_TOKENS, ServiceTimes};
use std::time::Duration;

/// Part of a record in which coefficients are found; the rest is held back for their errors.
const LEARNED: f64 = 0.7;

/// Maximum of the median error of a server that the model describes.
pub const DESCRIBED: f64 = 0.25;

/// Fewest requests of a server in the rest by which it is judged.
const JUDGED: usize = 20;

/// Times that coefficients and the speeds of single servers are found, each by the other.
const ROUNDS: usize = 3;

/// Equations that are solved at most; of more, every second, third and so on is taken.
const MAX_EQUATIONS: usize = 200_000;

/// Times of servers that no record shows: those of a model of some 8 to 30 billion parameters on one large
/// accelerator, as orders of magnitude: 25 000 prompt tokens a second, half of that behind a context of
/// 30 000, and up to 7 000 tokens of responses. `make simulate` has them too.
pub const DEFAULT: ServiceTimes = ServiceTimes {
    max_running: 256,
    step: Duration::from_millis(8),
    step_per_sequence: Duration::from_micros(50),
    step_per_context_token: Duration::from_nanos(40),
    prefill_per_token: Duration::from_micros(40),
    doubling_context: Some(30_000),
    reads_apart: false,
    max_batched_tokens: 8192,
    kv_blocks: 25_000,
    allocation: Allocation::AsNeeded,
    max_loras: 0,
    lora_load: Duration::ZERO,
    stream_interval: 1,
};

/// Servers that are given instead of fitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Prompt tokens that a server reads in a second.
    pub prefill_per_second: Option<f64>,
    /// Time of a step for a single request.
    pub step: Option<Duration>,
    /// Tokens in the cache of a server.
    pub cache_tokens: Option<u32>,
    /// Requests that a server works on at a time.
    pub max_running: Option<usize>,
}

/// Servers as a record shows them.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The servers.
    pub fleet: Fleet,
    /// Error of the times to the first token in the rest; `None`: the times are given or the defaults.
    pub prefill_error: Option<f64>,
    /// Error of the times for tokens in the rest; `None`: as above.
    pub decode_error: Option<f64>,
    /// Error of the cached tokens, as a part of all prompt tokens; `None`: the record does not show the size.
    pub cache_error: Option<f64>,
    /// Whether the record shows the number of requests at a time.
    pub shows_places: bool,
    /// Each server, in the order of the record's.
    pub servers: Vec<ServerFit>,
}

/// One server.
#[derive(Clone, Copy, Debug)]
pub struct ServerFit {
    /// How many times longer it takes than the fleet's times.
    pub slowness: f64,
    /// Median error of its times in the rest; `None`: it has too few requests there.
    pub error: Option<f64>,
}

impl ServerFit {
    /// Whether the model describes it.
    pub fn is_described(&self) -> bool {
        self.error.is_none_or(|error| error <= DESCRIBED)
    }
}

/// Fits servers to a record. Servers that it does not show have the given times, or the defaults; a record
/// without endpoints has this many of them.
pub fn fit(record: &Record, given: &Given, servers_without_names: usize) -> Fit {
    let requests = observed(record);
    let split = requests.partition_point(|request| {
        let end = record.requests.last().map_or(0.0, |last| last.at.as_secs_f64());
        request.at < end * LEARNED
    });
    let (learned, rest) = requests.split_at(split);
    let number = if record.servers.is_empty() { servers_without_names.max(1) } else { record.servers.len() };
    let mut speeds = Speeds { times: DEFAULT, slowness: vec![1.0; number], decode: None, prefill: None };
    // Times and speeds of single servers follow from each other.
    for _ in 0..ROUNDS {
        speeds.learn(learned);
    }
    let servers: Vec<ServerFit> = (0..number).map(|server| speeds.judge(server, rest)).collect();
    let errors = |of: &dyn Fn(&Observed) -> Option<f64>| median(rest.iter().filter_map(of).collect());
    let decode_error = speeds.decode.map(|_| errors(&|request| speeds.decode_error(request)));
    let prefill_error = speeds.prefill.map(|_| errors(&|request| speeds.prefill_error(request)));
    let mut times = speeds.times;
    let places = places(record, &requests);
    if let Some(places) = places {
        times.max_running = places;
    }
    if caches::keeps_responses(record) == Some(false) {
        times.allocation = Allocation::AtOnce;
    }
    let cache = caches::size(record);
    let in_flight = most_tokens(&requests);
    times.kv_blocks = match cache {
        Some((tokens, _)) => {
            // Responses take room too, and no later prompt shows theirs.
            let unread: f64 = requests.iter().map(|request| request.unread).sum();
            let output: f64 = requests.iter().map(|request| request.output).sum();
            whole(f64::from(tokens) * (1.0 + output / unread.max(1.0))).div_ceil(BLOCK_TOKENS)
        }
        // Whatever the record needed at a time was there.
        None => times.kv_blocks.max(whole(in_flight * 1.5).div_ceil(BLOCK_TOKENS)),
    };
    given.apply(&mut times);
    let kinds = servers.iter().map(|server| ServerKind::new(server.slowness, times.kv_blocks));
    let servers_of_fleet = kinds.collect();
    Fit {
        fleet: Fleet { times, servers: servers_of_fleet, has_slow_spell: false, shares_processor: false },
        prefill_error: prefill_error.filter(|_| given.prefill_per_second.is_none()),
        decode_error: decode_error.filter(|_| given.step.is_none()),
        cache_error: cache.map(|(_, error)| error).filter(|_| given.cache_tokens.is_none()),
        shows_places: places.is_some() && given.max_running.is_none(),
        servers,
    }
}

impl Given {
    fn apply(&self, times: &mut ServiceTimes) {
        if let Some(per_second) = self.prefill_per_second {
            times.prefill_per_token = seconds(1.0 / per_second);
            times.doubling_context = None;
        }
        if let Some(step) = self.step {
            // Further requests cost as much of it as they do by default.
            let part = step.as_secs_f64() / DEFAULT.step.as_secs_f64();
            times.step = step;
            times.step_per_sequence = DEFAULT.step_per_sequence.mul_f64(part);
            times.step_per_context_token = DEFAULT.step_per_context_token.mul_f64(part);
        }
        if let Some(tokens) = self.cache_tokens {
            times.kv_blocks = tokens.div_ceil(BLOCK_TOKENS).max(1);
        }
        if let Some(places) = self.max_running {
            times.max_running = places.max(1);
        }
    }
}

/// Fewest tokens of a response whose time is used: with fewer, the ends of steps decide.
const MIN_OUTPUT: f64 = 8.0;

/// Part of the requests during which prompts have to be read, to show whether that makes decoding slower.
const MEANWHILE: f64 = 0.1;

/// Prompts are read apart from decoding if each of their tokens makes it slower by less than this part of the
/// token's own time: none at all, but for the errors of both.
const APART: f64 = 0.25;

/// The speeds of servers.
struct Speeds {
    times: ServiceTimes,
    slowness: Vec<f64>,
    /// Seconds of a step, for each request in it, for each token of context, and for each token read.
    decode: Option<[f64; 4]>,
    /// Seconds for each unread token, and for each of these and each token before it.
    prefill: Option<[f64; 2]>,
}

impl Speeds {
    fn learn(&mut self, requests: &[Observed]) {
        self.decode = solve(&equations(requests, |request| self.decode_equation(request)));
        let Some([step, sequence, context, read]) = self.decode else { return };
        self.times.step = seconds(step);
        self.times.step_per_sequence = seconds(sequence);
        self.times.step_per_context_token = seconds(context);
        // Without the times of steps, times to the first token are not explained.
        self.prefill = solve(&equations(requests, |request| self.prefill_equation(request)))
            .filter(|[plain, _]| *plain > 0.0);
        if let Some([plain, growing]) = self.prefill {
            self.times.prefill_per_token = seconds(plain);
            self.times.doubling_context =
                (growing > 0.0).then(|| whole(plain / growing)).filter(|tokens| *tokens > 0);
            let meanwhile = requests.iter().filter(|request| request.read_meanwhile > 0.0).count();
            self.times.reads_apart =
                meanwhile as f64 >= requests.len() as f64 * MEANWHILE && read < plain * APART;
        }
        let slowness = (0..self.slowness.len()).map(|server| self.slowness_of(server, requests));
        self.slowness = slowness.collect();
    }

    fn slowness(&self, request: &Observed) -> f64 {
        self.slowness.get(request.server).copied().unwrap_or(1.0)
    }

    /// Steps, requests at the same server in these, their context, and tokens read meanwhile.
    fn decode_equation(&self, request: &Observed) -> Option<Equation<4>> {
        let steps = request.output - 1.0;
        let features = [steps, steps * request.decoding, steps * request.context, request.read_meanwhile];
        let value = (request.end - request.first_token) / self.slowness(request);
        (request.output >= MIN_OUTPUT && value > 0.0).then_some(Equation { features, value, scale: value })
    }

    /// Its unread tokens, and each of these times the tokens before it; of a request that waits alone.
    fn prefill_equation(&self, request: &Observed) -> Option<Equation<2>> {
        let unread = request.unread;
        let features = [unread, unread * (request.input - unread / 2.0)];
        let scale = (request.first_token - request.at) / self.slowness(request);
        let value = scale - self.steps_before(request);
        (request.is_alone && scale > 0.0).then_some(Equation { features, value, scale })
    }

    /// Seconds to the first token of a request that waits alone, but for its own tokens.
    fn steps_before(&self, request: &Observed) -> f64 {
        let step = self.times.step.as_secs_f64()
            + self.times.step_per_sequence.as_secs_f64() * request.decoding_before
            + self.times.step_per_context_token.as_secs_f64() * request.context_before;
        // Half of the step in flight, if there is one, in the mean.
        let in_flight = if request.decoding_before >= 1.0 { 0.5 } else { 0.0 };
        // What is read apart from the steps ends, in the mean, half of one before its token.
        let steps = if self.times.reads_apart {
            0.5
        } else {
            (request.unread / f64::from(self.times.max_batched_tokens)).ceil()
        };
        step * (in_flight + steps)
    }

    fn decode_error(&self, request: &Observed) -> Option<f64> {
        Some(self.decode_equation(request)?.error(&self.decode?))
    }

    fn prefill_error(&self, request: &Observed) -> Option<f64> {
        Some(self.prefill_equation(request)?.error(&self.prefill?))
    }

    /// How many times longer a server takes than predicted.
    fn slowness_of(&self, server: usize, requests: &[Observed]) -> f64 {
        let own = requests.iter().filter(|request| request.server == server);
        let parts = own.flat_map(|request| {
            let decode = self.decode.zip(self.decode_equation(request));
            let decode =
                decode.map(|(found, equation)| equation.scale / equation.predicted(&found).max(1e-9));
            let prefill = self.prefill.zip(self.prefill_equation(request));
            let prefill = prefill.map(|(found, equation)| {
                equation.scale / (equation.predicted(&found) + self.steps_before(request)).max(1e-9)
            });
            [decode, prefill].map(|part| part.map(|part| part * self.slowness(request)))
        });
        let parts: Vec<f64> = parts.flatten().collect();
        // Of few requests the median is chance, and a difference of a fiftieth is none.
        let slowness = if parts.len() < JUDGED { 1.0 } else { median(parts).clamp(0.01, 100.0) };
        if (0.98..1.02).contains(&slowness) { 1.0 } else { slowness }
    }

    fn judge(&self, server: usize, rest: &[Observed]) -> ServerFit {
        let own = rest.iter().filter(|request| request.server == server);
        let errors = own.flat_map(|request| [self.decode_error(request), self.prefill_error(request)]);
        let errors: Vec<f64> = errors.flatten().collect();
        let slowness = self.slowness.get(server).copied().unwrap_or(1.0);
        ServerFit { slowness, error: (errors.len() >= JUDGED).then(|| median(errors)) }
    }
}

fn equations<const N: usize>(
    requests: &[Observed],
    equation: impl Fn(&Observed) -> Option<Equation<N>>,
) -> Vec<Equation<N>> {
    let step = requests.len().div_ceil(MAX_EQUATIONS).max(1);
    requests.iter().step_by(step).filter_map(equation).collect()
}

/// Share of the requests that came while all places were taken and another waited, from which on the most at
/// a time are a limit and not chance.
const AT_LIMIT: f64 = 0.01;

/// The most requests that a server works on at a time, if it keeps others waiting then.
fn places(record: &Record, requests: &[Observed]) -> Option<usize> {
    let mut by_server = vec![Vec::new(); record.servers.len()];
    for request in requests {
        if let Some(own) = by_server.get_mut(request.server) {
            own.push(request);
        }
    }
    let limits = by_server.iter().filter_map(|own| {
        let most = own.iter().map(|request| request.decoding_before).fold(0.0, f64::max);
        let full = own.iter().filter(|request| request.decoding_before >= most && !request.is_alone);
        (most >= 2.0 && full.count() as f64 >= (own.len() as f64 * AT_LIMIT).max(JUDGED as f64))
            .then(|| whole(most) as usize)
    });
    limits.max()
}

/// The most tokens of requests that a server has at a time.
fn most_tokens(requests: &[Observed]) -> f64 {
    requests.iter().map(|request| request.context_before + request.input + request.output).fold(0.0, f64::max)
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3_600.0))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(number: f64) -> u32 {
    number.clamp(0.0, f64::from(u32::MAX)).round() as u32
}

/// The median; of none the greatest number, as nothing is known.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    let middle = numbers.len() / 2;
    if numbers.is_empty() {
        return f64::MAX;
    }
    *numbers.select_nth_unstable_by(middle, f64::total_cmp).1
}
