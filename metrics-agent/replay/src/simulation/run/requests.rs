//! The course of a request in a run: it is sent, decided, in steps of a server, and responded to.

use std::time::Duration;

use metrics_agent_server_model::Progress;

use super::{Clients, RunRequest, SimulatedEvent, SimulationRun};
use crate::simulation::figures::Served;
use crate::simulation::kv_events::EVENT_DELAY;
use crate::simulation::pickers::{Chunk, Pick};
use crate::simulation::proxies::{Proxies, Way};

impl<C: Clients, P: Proxies> SimulationRun<C, P> {
    /// A client sends its next request, unless the run is over.
    pub(super) fn send(&mut self, client: usize, now: Duration) {
        let Some(is_measured) = self.span.measures(self.sent.len(), now) else { return };
        let request = self.clients.next_request(client);
        let number = self.sent.len();
        let way = self.proxies.way(self.fleet.len());
        let (proxy, pick) = match way {
            Way::Past(server) => (None, Pick::Server(server)),
            Way::Proxy(proxy) => {
                let picker = &mut self.proxies.pickers()[proxy];
                (Some(proxy), picker.pick(&request, number, &self.fleet, now))
            }
        };
        let is_measured = is_measured && proxy.is_some();
        self.open += usize::from(is_measured);
        self.sent.push(RunRequest {
            client,
            proxy,
            at: now,
            waiting: Some(request),
            first_token: None,
            made: 0,
            arrives: now,
            server: 0,
            answer_tokens: 0,
            is_measured,
        });
        self.settle(number, pick, now);
        if let Some(proxy) = proxy {
            self.follow_queue(proxy, now);
        }
    }

    /// Sends requests that the queue of a proxy has resumed, and plans its next tick.
    pub(super) fn follow_queue(&mut self, proxy: usize, now: Duration) {
        let picker = &mut self.proxies.pickers()[proxy];
        let (resumed, wake_at) = (picker.take_resumed(now), picker.wake_at());
        for (number, pick) in resumed {
            self.settle(number, pick, now);
        }
        if let Some(at) = wake_at
            && self.ticking.insert(proxy)
        {
            self.events.plan(at.saturating_sub(now), SimulatedEvent::QueueTick { proxy });
        }
    }

    /// A request has been decided, or waits on.
    fn settle(&mut self, number: usize, pick: Pick, now: Duration) {
        let sent = &mut self.sent[number];
        let server = match pick {
            Pick::Waits => return,
            Pick::Server(server) => server,
            Pick::Refused => {
                self.figures.refused(sent.is_measured);
                self.open -= usize::from(sent.is_measured);
                sent.waiting = None;
                let client = sent.client;
                if let Some(pause) = self.clients.refused(client) {
                    self.events.plan(pause, SimulatedEvent::Request { client });
                }
                return;
            }
        };
        let Some(request) = sent.waiting.take() else { return };
        let work = request.work().clone();
        (sent.server, sent.answer_tokens) = (server, work.answer_tokens());
        if let Some(agent) = &mut self.agent {
            agent.sent(server, number, &request);
        }
        if let Some(end) = self.fleet.add(server, work, number, now) {
            self.events.plan(end.saturating_sub(now), SimulatedEvent::StepEnd { server });
        }
    }

    /// The step of a server has ended.
    pub(super) fn end_step(&mut self, server: usize, now: Duration) {
        let (mut progressed, mut ended) = (Vec::new(), Vec::new());
        let next = self.fleet.end_step(server, now, |number, progress| progressed.push((number, progress)));
        for (number, progress) in progressed {
            self.progress(number, progress, now);
            ended.extend(progress.is_all.then_some(number));
        }
        if let Some(end) = next {
            self.events.plan(end.saturating_sub(now), SimulatedEvent::StepEnd { server });
        }
        if let Some(agent) = &mut self.agent {
            let events = agent.events(server, self.fleet.take_published(server));
            self.events.plan(EVENT_DELAY, SimulatedEvent::CacheEvents { server, events });
            for number in ended {
                agent.ended(server, number);
            }
        }
    }

    /// A request has been in a step, which may have made a token.
    fn progress(&mut self, number: usize, progress: Progress, now: Duration) {
        let Progress { made, is_all, cached } = progress;
        let request = &mut self.sent[number];
        // One that was put back into the queue reads its own tokens again.
        if made == request.made {
            return;
        }
        request.made = made;
        if request.first_token.is_none() {
            request.first_token = Some(now);
            self.respond(number, Chunk::First, now);
        } else if !is_all && (made - 1).is_multiple_of(self.chunk_tokens) {
            self.respond(number, Chunk::More, now);
        }
        if !is_all {
            return;
        }
        self.respond(number, Chunk::Last { cached }, now);
        let request = &self.sent[number];
        if let Some(first_token) = request.first_token.filter(|_| request.is_measured) {
            self.open -= 1;
            self.figures.served(&Served {
                first_token: first_token.saturating_sub(request.at),
                rest: now.saturating_sub(first_token),
                answer_tokens: request.answer_tokens,
                server: request.server,
                is_in_time: self.over.is_none(),
            });
        }
        let client = request.client;
        if let Some(pause) = self.clients.ended(client) {
            self.events.plan(pause, SimulatedEvent::Request { client });
        }
    }

    /// A server responds with a chunk, which arrives at the proxy now or a little later, behind those before
    /// it.
    fn respond(&mut self, number: usize, chunk: Chunk, now: Duration) {
        let Some(late) = self.proxies.lateness() else { return self.pass(number, chunk, now) };
        let request = &mut self.sent[number];
        request.arrives = request.arrives.max(now + late);
        self.events.plan(request.arrives.saturating_sub(now), SimulatedEvent::Chunk { number, chunk });
    }

    /// A chunk arrives at the request's proxy, if it has one.
    pub(super) fn pass(&mut self, number: usize, chunk: Chunk, now: Duration) {
        if let Some(proxy) = self.sent[number].proxy {
            self.proxies.pickers()[proxy].chunk(number, chunk, now);
        }
    }
}
