//! Several requests to an agent in one.

use endpoint_picker_engine::agent::{AgentRequest, AgentResponse, CallError};
use endpoint_picker_engine::link::Call;
use endpoint_picker_wire::batch::{Batch, Part, Responses};
use endpoint_picker_wire::{BATCH_FORMAT, MAX_BATCH_PARTS, Message};

/// Bytes of bodies in a batch, above which the next request begins another one. The agent takes twice that.
const MAX_BYTES: usize = 4 << 20;

/// A request that is due for a pool.
#[derive(Debug)]
pub(super) struct PoolCall {
    /// The number of the pool.
    pub(super) pool: u64,
    pub(super) call: Call,
}

/// Divides requests into batches, each for one agent. All are in their order.
pub(super) fn divide(calls: Vec<PoolCall>) -> Vec<Vec<PoolCall>> {
    let mut batches: Vec<Vec<PoolCall>> = Vec::new();
    for next in calls {
        let is_of_agent =
            |batch: &&mut Vec<PoolCall>| batch.iter().all(|it| it.call.agent == next.call.agent);
        match batches.iter_mut().rev().find(is_of_agent).filter(|batch| has_room(batch, &next)) {
            Some(batch) => batch.push(next),
            None => batches.push(vec![next]),
        }
    }
    batches
}

fn has_room(batch: &[PoolCall], next: &PoolCall) -> bool {
    let bytes = |it: &PoolCall| it.call.request.body.as_ref().map_or(0, Vec::len);
    batch.len() < MAX_BATCH_PARTS && batch.iter().chain([next]).map(bytes).sum::<usize>() <= MAX_BYTES
}

/// The request that carries these requests. It takes the time of the slowest.
pub(super) fn request<'a>(calls: impl Iterator<Item = &'a AgentRequest> + Clone) -> AgentRequest {
    let part = |request: &AgentRequest| Part { path: request.path.clone(), body: request.body.clone() };
    let parts = calls.clone().map(part).collect();
    let timeout = calls.map(|request| request.timeout).max().unwrap_or_default();
    let body = Batch { format: BATCH_FORMAT, parts }.encode_to_vec();
    AgentRequest { path: "/v1/batch".to_owned(), body: Some(body), timeout }
}

/// The responses to `count` requests in the response to their batch.
pub(super) fn responses(
    response: Result<AgentResponse, CallError>,
    count: usize,
) -> Vec<Result<AgentResponse, CallError>> {
    let each = match response {
        Ok(AgentResponse { status: 200, body }) => match Responses::decode(body.as_slice()) {
            Ok(Responses { format: BATCH_FORMAT, responses }) if responses.len() == count => {
                let response = |part: endpoint_picker_wire::batch::Response| AgentResponse {
                    status: u16::try_from(part.status).unwrap_or(0),
                    body: part.body,
                };
                return responses.into_iter().map(|part| Ok(response(part))).collect();
            }
            Ok(_) => Err(CallError::NoResponse("its response is not the one to a batch".to_owned())),
            Err(error) => Err(CallError::NoResponse(format!("its response is malformed: {error}"))),
        },
        Ok(AgentResponse { status: 404, .. }) => Err(CallError::NoResponse(
            "it knows no batches, with which several pools are polled: update the agent".to_owned(),
        )),
        Ok(refused) => Ok(refused),
        Err(error) => Err(error),
    };
    vec![each; count]
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use core::time::Duration;

    use endpoint_picker_wire::batch::Response;

    use super::*;

    fn call(pool: u64, agent: usize, bytes: Option<usize>) -> PoolCall {
        let body = bytes.map(|bytes| vec![b'x'; bytes]);
        let timeout = Duration::from_secs(1);
        let request = AgentRequest { path: "/".to_owned(), body, timeout };
        PoolCall { pool, call: Call { id: 1, agent, request } }
    }

    #[test]
    fn a_batch_has_one_agent_and_neither_too_many_requests_nor_too_many_bytes() {
        let limit = u64::try_from(MAX_BATCH_PARTS).unwrap();
        let many = (0..=limit).map(|pool| call(pool, 0, None));
        let large = [(1, Some(MAX_BYTES - 1)), (0, Some(9)), (1, Some(1)), (1, Some(1)), (1, None)];
        let large = large.into_iter().map(|(agent, bytes)| call(0, agent, bytes));
        let batches = divide(many.chain(large).collect());
        let sizes: Vec<_> = batches.iter().map(|batch| (batch[0].call.agent, batch.len())).collect();
        assert_eq!(sizes, [(0, MAX_BATCH_PARTS), (0, 2), (1, 2), (1, 2)]);
        assert!(batches[0].iter().map(|it| it.pool).eq(0..limit), "in their order");
    }

    #[test]
    fn a_response_that_is_not_the_one_to_the_batch_fails_every_request() {
        let body = |format, count| {
            let responses = vec![Response { status: 204, body: Vec::new() }; count];
            Ok(AgentResponse { status: 200, body: Responses { format, responses }.encode_to_vec() })
        };
        assert!(
            responses(body(BATCH_FORMAT, 2), 2).iter().all(|it| matches!(it, Ok(it) if it.status == 204))
        );
        let malformed = Ok(AgentResponse { status: 200, body: b"x".to_vec() });
        for wrong in [body(BATCH_FORMAT, 1), body(BATCH_FORMAT + 1, 2), malformed] {
            let each = responses(wrong, 2);
            assert!(each.len() == 2 && each.iter().all(Result::is_err), "{each:?}");
        }
        let older = responses(Ok(AgentResponse { status: 404, body: Vec::new() }), 1);
        assert!(older[0].as_ref().unwrap_err().to_string().contains("update the agent"), "{older:?}");
        let refused = responses(Ok(AgentResponse { status: 401, body: b"why".to_vec() }), 1);
        assert_eq!(refused, [Ok(AgentResponse { status: 401, body: b"why".to_vec() })]);
    }
}
