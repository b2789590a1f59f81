//! What a record shows of its servers: for each request the requests beside it.

use super::caches::uncached;
use crate::record::Record;

/// A request of which the record has all times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) server: usize,
    /// Seconds since the first request.
    pub(super) at: f64,
    pub(super) first_token: f64,
    pub(super) end: f64,
    pub(super) input: f64,
    /// Tokens of its prompt that its server had to read.
    pub(super) unread: f64,
    pub(super) output: f64,
    /// Requests that decode beside it, itself included, the mean over its tokens behind the first one.
    pub(super) decoding: f64,
    /// Tokens of context of these.
    pub(super) context: f64,
    /// Tokens of prompts that its server read meanwhile.
    pub(super) read_meanwhile: f64,
    /// Requests that decoded when it came, and their context.
    pub(super) decoding_before: f64,
    pub(super) context_before: f64,
    /// Whether no other request waited for its first token at the same time.
    pub(super) is_alone: bool,
}

/// Requests that decode, as sums over time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    at: f64,
    decoding: f64,
    context: f64,
    /// Integrals up to `at`.
    decoding_time: f64,
    context_time: f64,
    read: f64,
}

/// The requests of a record with all times, in its order.
pub(super) fn observed(record: &Record) -> Vec<Observed> {
    let unread = uncached(record);
    let mut by_server = vec![Vec::new(); record.servers.len()];
    for (request, unread) in record.requests.iter().zip(unread) {
        let (Some(server), Some(first_token), Some(end)) = (request.server, request.first_token, request.end)
        else {
            continue;
        };
        if !request.is_served {
            continue;
        }
        let at = request.at.as_secs_f64();
        let observed = Observed {
            server: server.into(),
            at,
            first_token: at + first_token.as_secs_f64(),
            end: at + end.as_secs_f64(),
            input: request.input.into(),
            unread,
            output: request.output.into(),
            decoding: 0.0,
            context: 0.0,
            read_meanwhile: 0.0,
            decoding_before: 0.0,
            context_before: 0.0,
            is_alone: false,
        };
        if let Some(requests) = by_server.get_mut(observed.server) {
            requests.push(observed);
        }
    }
    let mut all: Vec<_> = by_server.into_iter().flat_map(beside_each_other).collect();
    all.sort_by(|a, b| a.at.total_cmp(&b.at));
    all
}

/// Sets what each request of a server has beside it.
fn beside_each_other(mut requests: Vec<Observed>) -> Vec<Observed> {
    let sums = sums(&requests);
    let at = |time: f64| {
        let place = sums.partition_point(|sums| sums.at <= time);
        let mut sums = place.checked_sub(1).and_then(|place| sums.get(place)).copied().unwrap_or_default();
        sums.decoding_time += (time - sums.at) * sums.decoding;
        sums.context_time += (time - sums.at) * sums.context;
        sums
    };
    // First tokens that came after the beginning of a wait are those of requests that waited too, or came
    // later: sorted, the least of those that came before shows whether any waits.
    let mut latest_before = f64::MIN;
    let mut alone = vec![true; requests.len()];
    for place in 0..requests.len() {
        let Some(own) = requests.get(place) else { break };
        let next = requests.get(place + 1).map_or(f64::MAX, |next| next.at);
        if let Some(alone) = alone.get_mut(place) {
            *alone = latest_before <= own.at && next >= own.first_token;
        }
        latest_before = latest_before.max(own.first_token);
    }
    for (request, alone) in requests.iter_mut().zip(alone) {
        let (first, end) = (at(request.first_token), at(request.end));
        let lasting = (request.end - request.first_token).max(1e-9);
        request.decoding = ((end.decoding_time - first.decoding_time) / lasting).max(1.0);
        request.context = (end.context_time - first.context_time) / lasting;
        request.read_meanwhile = end.read - first.read;
        let before = at(request.at);
        request.decoding_before = before.decoding;
        request.context_before = before.context;
        request.is_alone = alone;
    }
    requests
}

fn sums(requests: &[Observed]) -> Vec<Sums> {
    // A request decodes from its first token on, and its prompt was read then.
    let mut changes: Vec<(f64, f64, f64, f64)> = Vec::with_capacity(requests.len() * 2);
    for request in requests {
        let context = request.input + request.output / 2.0;
        changes.push((request.first_token, 1.0, context, request.unread));
        changes.push((request.end, -1.0, -context, 0.0));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sums = Sums::default();
    let next = |(at, decoding, context, read): (f64, f64, f64, f64)| {
        sums = Sums {
            at,
            decoding: sums.decoding + decoding,
            context: sums.context + context,
            decoding_time: sums.decoding_time + (at - sums.at) * sums.decoding,
            context_time: sums.context_time + (at - sums.at) * sums.context,
            read: sums.read + read,
        };
        sums
    };
    changes.into_iter().map(next).collect()
}
