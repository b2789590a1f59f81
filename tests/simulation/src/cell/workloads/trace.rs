//! Requests recorded by others, from a file.

use crate::cell::request::{Segment, SimulatedRequest, mixed};
use crate::cell::sessions::{Arrival, Session, Sessions};
use core::fmt;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Recorded requests: when they came, their lengths, and with JSON lines the blocks of their prompts.
///
/// Two formats are read, and the first line decides:
///
/// - CSV with the header `TIMESTAMP,ContextTokens,GeneratedTokens`: Azure's traces of 2023. Prompts share
///   nothing.
/// - JSON lines with `timestamp`, `input_length`, `output_length` and `hash_ids`: Mooncake's traces, and
///   other traces with hashed blocks. Equal numbers in `hash_ids` are equal blocks of the prompt. Their size
///   follows from the lengths: the smallest power of two from 16 on with which the blocks of every prompt
///   suffice.
///
/// Times are stretched or compressed to the load that is asked for. Each seed begins at another place of the
/// file; behind the last request the first one follows.
#[derive(Debug)]
pub struct Trace {
    name: String,
    /// In the order of their times; at least two.
    requests: Vec<Recorded>,
    block_tokens: u32,
}

#[derive(Debug)]
struct Recorded {
    /// In any unit.
    at: f64,
    input: u32,
    output: u32,
    blocks: Vec<u64>,
}

/// Why a file is no trace: a line and its problem.
#[derive(Debug, PartialEq, Eq)]
pub struct TraceError {
    line: usize,
    problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for TraceError {}

/// Maximum length of a prompt or a response.
const MAX_TOKENS: u32 = 1 << 20;
/// Maximum number of requests of a file.
const MAX_REQUESTS: usize = 2_000_000;
const AZURE_HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
const BLOCK_SIZES: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];

impl Trace {
    /// Reads the content of a file of this path.
    pub fn read(path: &Path, text: &str) -> Result<Self, TraceError> {
        let name =
            path.file_stem().map_or_else(|| "trace".to_owned(), |name| name.to_string_lossy().into_owned());
        let is_csv = text
            .lines()
            .next()
            .is_some_and(|line| line.trim_start_matches('\u{feff}').trim() == AZURE_HEADER);
        let parse = if is_csv { csv_line } else { json_line };
        let lines = text.lines().enumerate().skip(usize::from(is_csv));
        let lines = lines.filter(|(_, line)| !line.trim().is_empty());
        let at_line = |line: usize| move |problem: String| TraceError { line: line + 1, problem };
        let mut requests = Vec::new();
        for (line, text) in lines {
            let request = parse(text).map_err(at_line(line))?;
            if requests.len() == MAX_REQUESTS {
                return Err(at_line(line)(format!("more than {MAX_REQUESTS} requests")));
            }
            requests.push(request);
        }
        if requests.len() < 2 {
            return Err(TraceError {
                line: 1,
                problem: format!("no trace: neither the header {AZURE_HEADER:?} nor two lines of JSON"),
            });
        }
        let fits = |size: &u32| {
            requests.iter().all(|request| {
                request.blocks.is_empty()
                    || request.blocks.len() as u64 * u64::from(*size) >= request.input.into()
            })
        };
        let block_tokens = BLOCK_SIZES.into_iter().find(fits).unwrap_or(BLOCK_SIZES[6]);
        requests.sort_by(|a, b| a.at.total_cmp(&b.at));
        Ok(Self { name, requests, block_tokens })
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Blocks in the cache of a server: more where prompts are long enough to share blocks.
    pub(super) fn kv_blocks(&self) -> u32 {
        if self.requests.iter().any(|request| !request.blocks.is_empty()) {
            60_000
        } else {
            super::BIG.kv_blocks
        }
    }

    /// The place at which a seed begins.
    fn start(&self, seed: u64) -> usize {
        usize::try_from(mixed(seed) % self.requests.len() as u64).unwrap_or(0)
    }

    /// The request at a place, counted on behind the end. Texts that nothing shares are new each time.
    fn session(&self, place: usize) -> Session {
        let Recorded { input, output, blocks, .. } = &self.requests[place % self.requests.len()];
        let own = |part: u64| mixed(mixed(place as u64) ^ part);
        let prompt = if blocks.is_empty() {
            vec![Segment { id: own(1), tokens: *input }]
        } else {
            let mut left = *input;
            let segment = |hash: &u64| {
                let tokens = self.block_tokens.min(left);
                left -= tokens;
                Segment { id: mixed(!hash), tokens }
            };
            blocks.iter().map(segment).filter(|segment| segment.tokens > 0).collect()
        };
        Session::single(SimulatedRequest::new(None, prompt, Segment { id: own(2), tokens: *output }))
    }

    /// Its requests, with this many per second in the mean.
    pub(super) fn arrivals(&self, per_second: f64, lasting: Duration, seed: u64) -> Vec<Arrival> {
        let (first, start) = (self.requests[0].at, self.start(seed));
        let span = (self.requests[self.requests.len() - 1].at - first).max(f64::MIN_POSITIVE);
        // One gap more, from the last request to the first one of the next round.
        let period = span * self.requests.len() as f64 / (self.requests.len() - 1) as f64;
        let time = |place: usize| {
            let round = place / self.requests.len();
            self.requests[place % self.requests.len()].at - first + period * round as f64
        };
        let wanted = per_second * lasting.as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of requests")]
        let count = (wanted.ceil() as usize).max(2);
        // The load of this part of the trace is the one that is asked for.
        let part = (time(start + count) - time(start)).max(f64::MIN_POSITIVE);
        let scale = lasting.as_secs_f64() / part;
        let arrival = |place: usize| Arrival {
            at: Duration::from_secs_f64(((time(place) - time(start)) * scale).max(0.0)),
            session: self.session(place),
        };
        (start..start + count).map(arrival).collect()
    }
}

/// The requests of a trace one after another.
pub(super) struct Replay {
    trace: Arc<Trace>,
    next: usize,
}

impl Replay {
    pub(super) fn new(trace: Arc<Trace>, seed: u64) -> Self {
        let next = trace.start(seed);
        Self { trace, next }
    }
}

impl Sessions for Replay {
    fn draw(&mut self) -> Session {
        self.next += 1;
        self.trace.session(self.next - 1)
    }
}

fn csv_line(line: &str) -> Result<Recorded, String> {
    let fields: Vec<&str> = line.trim().split(',').collect();
    let [time, input, output] = fields[..] else {
        return Err(format!("{} fields; must be 3", fields.len()));
    };
    let number =
        |name: &str, text: &str| text.parse().map_err(|_| format!("{name} is {text:?}; must be a number"));
    Ok(Recorded {
        at: seconds(time)
            .ok_or_else(|| format!("TIMESTAMP is {time:?}; must be like 2023-11-16 18:15:46.68"))?,
        input: tokens("ContextTokens", number("ContextTokens", input)?)?,
        output: tokens("GeneratedTokens", number("GeneratedTokens", output)?)?,
        blocks: Vec::new(),
    })
}

fn json_line(line: &str) -> Result<Recorded, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let number = |name: &str| {
        let number = value[name].as_f64().filter(|number| number.is_finite());
        number.ok_or_else(|| format!("{name} is {}; must be a number", value[name]))
    };
    let Some(hashes) = value["hash_ids"].as_array() else {
        return Err(format!("hash_ids is {}; must be a list of numbers", value["hash_ids"]));
    };
    let hash =
        |hash: &Value| hash.as_u64().ok_or_else(|| format!("hash_ids has {hash}; must be whole numbers"));
    let blocks: Vec<u64> = hashes.iter().map(hash).collect::<Result<_, _>>()?;
    let input = tokens("input_length", number("input_length")?)?;
    if blocks.len() as u64 * u64::from(BLOCK_SIZES[6]) < input.into() {
        let needed = input.div_ceil(BLOCK_SIZES[6]);
        return Err(format!(
            "hash_ids has {} blocks for {input} tokens; must be at least {needed}",
            blocks.len()
        ));
    }
    Ok(Recorded {
        at: number("timestamp")?,
        input,
        output: tokens("output_length", number("output_length")?)?,
        blocks,
    })
}

/// A number of tokens; an empty response counts as one token.
fn tokens(name: &str, number: f64) -> Result<u32, String> {
    if !(0.0..=f64::from(MAX_TOKENS)).contains(&number) {
        return Err(format!("{name} is {number}; must be 0 to {MAX_TOKENS}"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in its range")]
    let number = number as u32;
    Ok(number.max(1))
}

/// Seconds of a time such as `2023-11-16 18:15:46.6805900`, since any origin.
fn seconds(time: &str) -> Option<f64> {
    let (date, clock) = time.split_once(' ')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut clock =
        clock.splitn(3, ':').map(|part| part.parse::<f64>().ok().filter(|number| number.is_finite()));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    // Months of 31 days: only differences within a day or two count.
    let days = (f64::from(year) * 12.0 + f64::from(month)) * 31.0 + f64::from(day);
    Some(((days * 24.0 + hour) * 60.0 + minute) * 60.0 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, TraceError> {
        Trace::read(Path::new("folder/some.csv"), text)
    }

    const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n\
        2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:51.2225670,879,55\n";
    const MOONCAKE: &str = "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [46, 47]}\n\
        {\"timestamp\": 3000, \"input_length\": 1300, \"output_length\": 7, \"hash_ids\": [46, 47, 48]}\n";

    #[test]
    fn azures_traces_are_lengths_and_times() {
        let trace = read(AZURE).unwrap();
        assert_eq!((trace.name(), trace.requests.len()), ("some", 3));
        let work = trace.session(1).turns[0].request.work().clone();
        assert_eq!((work.prompt_tokens(), work.answer_tokens()), (396, 109));
        let gap = trace.requests[1].at - trace.requests[0].at;
        assert!((gap - 4.314_579).abs() < 1e-5, "{gap}");
    }

    #[test]
    fn prompts_with_equal_blocks_begin_alike() {
        let trace = read(MOONCAKE).unwrap();
        assert_eq!(trace.block_tokens, 512);
        let blocks = |place| trace.session(place).turns[0].request.work().prompt_blocks().to_vec();
        // 62 blocks of 16 tokens are full in 1 000 tokens, and the second prompt has all of them.
        assert_eq!((blocks(0).len(), &blocks(0)[..]), (62, &blocks(1)[..62]));
        assert_eq!(blocks(1).len(), 81);
    }

    #[test]
    fn requests_come_at_the_rate_that_is_asked_for_from_another_place_for_each_seed() {
        let trace = read(AZURE).unwrap();
        let arrivals = |seed| trace.arrivals(5.0, Duration::from_secs(20), seed);
        assert_eq!(arrivals(1).len(), 100);
        assert!(arrivals(1).windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(arrivals(1)[99].at < Duration::from_secs(20));
        let starts: Vec<usize> = (0..20).map(|seed| trace.start(seed)).collect();
        assert!((0..3).all(|place| starts.contains(&place)));
    }

    #[test]
    fn a_file_that_is_no_trace_is_refused_with_its_line() {
        let problem = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(
            problem("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n"),
            "line 2: TIMESTAMP is \"now\"; must be like 2023-11-16 18:15:46.68"
        );
        assert_eq!(
            problem("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,-1\n"),
            "line 2: GeneratedTokens is -1; must be 0 to 1048576"
        );
        assert_eq!(problem("{\"timestamp\": 1}\n"), "line 1: hash_ids is null; must be a list of numbers");
        assert!(problem("").contains("no trace"));
        let huge = "{\"timestamp\": 0, \"input_length\": 1000000, \"output_length\": 5, \"hash_ids\": [46]}";
        assert_eq!(problem(huge), "line 1: hash_ids has 1 blocks for 1000000 tokens; must be at least 977");
    }
}
