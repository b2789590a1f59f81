//! The clients of a record, as a simulation asks them.

use crate::record::{Record, RecordedRequest};
use crate::simulation::request::{Segment, SimulatedRequest, mixed};
use crate::simulation::run::Clients;
use crate::simulation::sessions::{Session, Turn};
use endpoint_picker::rng::{Rng, SplitMix64};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Which requests follow which.
///
/// A request of a session that came after the end of the one before it follows that end with the recorded
/// pause, whenever that is in the replay. All others come at their recorded times.
#[derive(Debug)]
pub(crate) struct Order {
    /// The request that follows each in its session.
    next: Vec<Option<u32>>,
    /// Whether the request that follows waits for the end.
    waits: Vec<bool>,
    /// The requests that come at their recorded times.
    first: Vec<u32>,
}

/// The clients of a replay. Each client is a chain of requests.
pub(crate) struct RecordClients<'a> {
    record: &'a Record,
    order: &'a Order,
    /// The next request of each client.
    at: Vec<u32>,
    /// Is called for each request.
    sent: &'a (dyn Fn() + Sync),
}

/// Greatest shift of the time of a request, for all seeds but the first one: large enough that requests meet
/// others, and small compared with the changes of load in a record.
const SHIFT: Duration = Duration::from_secs(1);

impl Order {
    pub(crate) fn new(record: &Record) -> Self {
        let mut next = vec![None; record.requests.len()];
        let mut waits = vec![false; record.requests.len()];
        let mut first = Vec::new();
        let mut last_of_session: HashMap<u64, usize> = HashMap::new();
        for (place, request) in record.requests.iter().enumerate() {
            let number = u32::try_from(place).unwrap_or(u32::MAX);
            let before = request.session.and_then(|session| last_of_session.insert(session, place));
            let before = before.and_then(|before| Some((before, record.requests.get(before)?)));
            let mut follows = false;
            if let Some((before, earlier)) = before {
                follows = pause(earlier, request).is_some();
                if let (Some(next), Some(waits)) = (next.get_mut(before), waits.get_mut(before)) {
                    (*next, *waits) = (Some(number), follows);
                }
            }
            if !follows {
                first.push(number);
            }
        }
        Self { next, waits, first }
    }

    /// When each client sends its first request, at this load, with this seed.
    pub(crate) fn first_requests(&self, record: &Record, load: f64, seed: u64) -> Vec<Duration> {
        let mut rng = SplitMix64::new(mixed(seed));
        let requests = self.first.iter().filter_map(|place| record.requests.get(*place as usize));
        let time = |request: &RecordedRequest| {
            let at = request.at.div_f64(load);
            if seed == 1 { at } else { at + SHIFT.mul_f64(rng.unit()) }
        };
        requests.map(time).collect()
    }
}

/// Time from the end of a request to the next one of its session, if it came later.
fn pause(earlier: &RecordedRequest, request: &RecordedRequest) -> Option<Duration> {
    request.at.checked_sub(earlier.at + earlier.end?)
}

/// The sessions of a record, each a chain of requests with the recorded pauses. A request without a session,
/// or before the end of the one before it, is a session of its own.
pub fn sessions(record: &Record) -> Vec<Session> {
    let order = Order::new(record);
    let follower = |place: u32| {
        let waits = order.waits.get(place as usize).is_some_and(|waits| *waits);
        order.next.get(place as usize).copied().flatten().filter(|_| waits)
    };
    let request = |place: u32| record.requests.get(place as usize);
    let turn = |before: Option<u32>, place: u32| {
        let next = order.next.get(place as usize).copied().flatten().and_then(request);
        let pause = before.and_then(|before| pause(request(before)?, request(place)?)).unwrap_or_default();
        Turn { request: Arc::new(simulated(record, place as usize, next)), pause }
    };
    let session = |first: &u32| {
        let chain: Vec<u32> = core::iter::successors(Some(*first), |place| follower(*place)).collect();
        let before = core::iter::once(None).chain(chain.iter().copied().map(Some));
        Session { turns: before.zip(&chain).map(|(before, place)| turn(before, *place)).collect() }
    };
    order.first.iter().map(session).collect()
}

impl<'a> RecordClients<'a> {
    pub(crate) fn new(record: &'a Record, order: &'a Order, sent: &'a (dyn Fn() + Sync)) -> Self {
        Self { record, order, at: order.first.clone(), sent }
    }

    fn next_of(&self, place: usize) -> Option<&'a RecordedRequest> {
        let next = self.order.next.get(place).copied().flatten()?;
        self.record.requests.get(next as usize)
    }
}

impl Clients for RecordClients<'_> {
    fn next_request(&mut self, client: usize) -> Arc<SimulatedRequest> {
        (self.sent)();
        let place = self.at.get(client).map_or(0, |place| *place as usize);
        let next = self.next_of(place);
        Arc::new(simulated(self.record, place, next))
    }

    fn ended(&mut self, client: usize) -> Option<Duration> {
        let at = self.at.get_mut(client)?;
        let place = *at as usize;
        if !self.order.waits.get(place).is_some_and(|waits| *waits) {
            return None;
        }
        let next = self.order.next.get(place).copied().flatten()?;
        *at = next;
        pause(self.record.requests.get(place)?, self.record.requests.get(next as usize)?)
    }

    /// The rest of its session was recorded too.
    fn refused(&mut self, client: usize) -> Option<Duration> {
        self.ended(client)
    }
}

/// A request as servers and pickers see it. Where the next prompt of its session begins with its own, the
/// text behind it there is its response, so servers that keep responses have it.
pub(crate) fn simulated(record: &Record, place: usize, next: Option<&RecordedRequest>) -> SimulatedRequest {
    let Some(request) = record.requests.get(place) else {
        return SimulatedRequest::new(None, Vec::new(), Segment { id: 0, tokens: 1 });
    };
    let own = record.blocks(request);
    let all = request.input + request.output;
    // The last block is not full, or is not there.
    let full = own.len().min((request.input / record.block_tokens) as usize);
    let continued = next.map(|next| (next.input, record.blocks(next)));
    let continued = continued.filter(|(input, later)| *input >= all && later.get(..full) == own.get(..full));
    let (blocks, covered) = continued.map_or((own, request.input), |(_, later)| (later, all));
    let mut texts = Vec::with_capacity((covered / record.block_tokens) as usize + 2);
    let mut left = covered;
    for hash in blocks {
        let tokens = record.block_tokens.min(left);
        if tokens == 0 {
            break;
        }
        left -= tokens;
        texts.push(Segment { id: mixed(!hash), tokens });
    }
    left += all - covered;
    if left > 0 {
        texts.push(Segment { id: mixed(mixed(place as u64) ^ RESPONSES), tokens: left });
    }
    let adapter = request.adapter.and_then(|place| record.adapters.get(usize::from(place))).cloned();
    let mut simulated =
        SimulatedRequest::of_texts(adapter, texts, request.input as usize, request.output.into());
    simulated.session = request.session;
    simulated.tenant = request.tenant;
    simulated.max_tokens = request.max_output;
    simulated.recorded = request.server.map(usize::from);
    simulated
}

/// Makes texts of responses differ from those of prompts.
const RESPONSES: u64 = 0x7265_7370_6f6e_7365;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn record(lines: &[&str]) -> Record {
        let header = r#"{"record":"endpoint-picker/1","started":0,"block_tokens":64}"#;
        Record::read([&[header], lines].concat().join("\n").as_bytes()).unwrap()
    }

    #[test]
    fn a_request_of_a_session_follows_the_end_of_the_one_before() {
        let record = record(&[
            r#"{"timestamp":0,"input_length":10,"output_length":1,"session":"a","end_ms":500}"#,
            r#"{"timestamp":100,"input_length":10,"output_length":1,"session":"b","end_ms":500}"#,
            r#"{"timestamp":800,"input_length":10,"output_length":1,"session":"a","end_ms":10}"#,
            r#"{"timestamp":300,"input_length":10,"output_length":1,"session":"b","end_ms":500}"#,
        ]);
        let order = Order::new(&record);
        let times = order.first_requests(&record, 2.0, 1);
        assert_eq!(times, [0, 50, 150].map(Duration::from_millis), "the second of b did not wait");
        let mut clients = RecordClients::new(&record, &order, &|| ());
        clients.next_request(0);
        assert_eq!(clients.ended(0), Some(Duration::from_millis(300)));
        assert_eq!((clients.ended(0), clients.ended(1)), (None, None));
        let pauses: Vec<Vec<u128>> = sessions(&record)
            .iter()
            .map(|session| session.turns.iter().map(|turn| turn.pause.as_millis()).collect())
            .collect();
        assert_eq!(pauses, [vec![0, 300], vec![0], vec![0]]);
    }

    #[test]
    fn the_text_of_a_response_is_that_of_the_next_prompt() {
        let record = record(&[
            r#"{"timestamp":0,"input_length":100,"output_length":60,"hash_ids":[1],"session":"a","end_ms":5}"#,
            r#"{"timestamp":9,"input_length":200,"output_length":1,"hash_ids":[1,2,3],"session":"a"}"#,
        ]);
        let next = simulated(&record, 1, None);
        let first = simulated(&record, 0, record.requests.get(1));
        assert_eq!(first.work().blocks(), &next.work().blocks()[..10]);
        assert_eq!((first.work().prompt_tokens(), first.work().answer_tokens()), (100, 60));
        let alone = simulated(&record, 0, None);
        assert_eq!(alone.work().blocks()[..4], next.work().blocks()[..4]);
        assert_ne!(alone.work().blocks()[4..10], next.work().blocks()[4..10]);
    }
}
