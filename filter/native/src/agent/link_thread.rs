//! A thread that sends the requests of links to the same agents, over connections of its own: one pool's long
//! polls, or the requests of several pools in batches.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::io;
use std::panic::catch_unwind;
use std::sync::Arc;

use endpoint_picker::period::Period;
use endpoint_picker_engine::link::{Link, LinkedPool as _};
use parking_lot::Mutex;

use super::batch::{self, PoolCall};
use super::connection::AgentConnection;
use super::updated_pool::UpdatedPool;
use crate::config::AgentAccess;
use crate::process::clock;
use crate::process::thread::Stop;
use crate::process::thread::Thread;

/// Time between two rounds while no exchange can begin, because no snapshot has arrived yet.
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// Time from one round of several pools to the next. The agent publishes no more often.
const ROUND_EVERY: Duration = Duration::from_millis(20);

/// Time between two checks whether a snapshot can be adopted.
const ADOPTION_PAUSE: Duration = Duration::from_millis(1);

/// The links of one thread.
#[derive(Debug)]
pub(super) struct LinkThread {
    links: Arc<Links>,
    _thread: Thread,
}

/// The links of one thread, by the number of their pool.
#[derive(Debug)]
struct Links {
    links: Mutex<Vec<PoolLink>>,
    /// Maximum time between two rounds of one pool.
    max_pause: Duration,
}

#[derive(Debug)]
struct PoolLink {
    number: u64,
    link: Link,
    pool: UpdatedPool,
}

impl LinkThread {
    /// Starts a thread of this name without links; without a way to agents it only adopts views. `each_round`
    /// runs after each request, and after `max_pause` while none is sent. The thread's end takes up to a
    /// second if it is connecting to an agent; anything else is interrupted.
    pub(super) fn start(
        name: &str,
        access: Option<&AgentAccess>,
        max_pause: Duration,
        mut each_round: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let links = Arc::new(Links { links: Mutex::default(), max_pause });
        let (shared, access) = (Arc::clone(&links), access.cloned());
        let thread = Thread::start(name, move |stop| {
            let mut connection = access.map(|access| AgentConnection::new(&access, Arc::clone(stop)));
            while !stop.is_stopped() {
                let begun = clock::now();
                let has_sent = if let Some(connection) = &mut connection {
                    shared.send_due(connection, stop)
                } else {
                    shared.advance_adoptions();
                    false
                };
                each_round();
                shared.pause(has_sent, begun, stop);
            }
        })?;
        Ok(Self { links, _thread: thread })
    }

    /// Sends the requests of a link from now on.
    pub(super) fn add(&self, number: u64, link: Link, pool: UpdatedPool) {
        self.links.links.lock().push(PoolLink { number, link, pool });
    }

    /// Runs with a pool, if it is there still.
    pub(super) fn with_pool(&self, number: u64, run: impl FnOnce(&mut UpdatedPool)) {
        self.links.with(number, |_, pool| run(pool));
    }

    /// Sends no further request of a pool. A response that arrives later is dropped.
    pub(super) fn remove(&self, number: u64) {
        self.links.links.lock().retain(|link| link.number != number);
    }
}

impl Links {
    /// Sends the requests that are due. Returns whether there were any.
    fn send_due(&self, connection: &mut AgentConnection, stop: &Stop) -> bool {
        let (calls, is_one_pool) = self.due();
        let has_calls = !calls.is_empty();
        // One pool has a connection for itself, on which the agent may hold its polls.
        let batches = if is_one_pool { vec![calls] } else { batch::divide(calls) };
        for batch in batches {
            let Some(agent) = batch.first().map(|it| it.call.agent) else { continue };
            let responses = match &batch[..] {
                [only] if is_one_pool => vec![connection.send(agent, &only.call.request, clock::now())],
                _ => {
                    let request = batch::request(batch.iter().map(|it| &it.call.request));
                    batch::responses(connection.send(agent, &request, clock::now()), batch.len())
                }
            };
            // The stop has interrupted the request, so its failure says nothing about the agent.
            if stop.is_stopped() {
                return true;
            }
            for (PoolCall { pool, call }, response) in batch.into_iter().zip(responses) {
                self.with(pool, |link, pool| {
                    link.finish(call.id, response, pool, clock::now());
                });
            }
        }
        has_calls
    }

    /// The requests that are due, and whether there is one pool alone. Of one pool it is one request, because
    /// a poll that the agent holds keeps a report back.
    fn due(&self) -> (Vec<PoolCall>, bool) {
        let links = &mut *self.links.lock();
        let is_one_pool = links.len() == 1;
        let max_calls = if is_one_pool { 1 } else { usize::MAX };
        let mut calls = Vec::new();
        for link in links {
            let number = link.number;
            link.run(|link, pool| {
                let due = core::iter::from_fn(|| link.due(pool, clock::now()));
                calls.extend(due.take(max_calls).map(|call| PoolCall { pool: number, call }));
            });
        }
        (calls, is_one_pool)
    }

    /// Runs with the link of a pool, if it is there still.
    fn with(&self, number: u64, run: impl FnOnce(&mut Link, &mut UpdatedPool)) {
        if let Some(link) = self.links.lock().iter_mut().find(|link| link.number == number) {
            link.run(run);
        }
    }

    /// Waits until the next round. Polls of one pool that the agent holds follow one another without a pause;
    /// rounds of several pools are at a fixed distance, so that their polls come due together.
    fn pause(&self, has_sent: bool, begun: Duration, stop: &Stop) {
        if let Some(pause) = self.pause_of_one_pool() {
            if !has_sent {
                stop.wait(pause);
            }
            return;
        }
        let round = Period::new(begun, ROUND_EVERY);
        while !stop.is_stopped() {
            let left = round.left(clock::now());
            if left.is_zero() {
                return;
            }
            let is_adopting = self.advance_adoptions();
            stop.wait(if is_adopting { left.min(ADOPTION_PAUSE) } else { left });
        }
    }

    /// The pause until the next request of one pool; `None`: there are several.
    fn pause_of_one_pool(&self) -> Option<Duration> {
        match &self.links.lock()[..] {
            // The first link is about to be added, or the thread to be stopped.
            [] => Some(ADOPTION_PAUSE),
            [only] if only.pool.is_adopting() => Some(ADOPTION_PAUSE),
            [only] => Some(match only.link.pause(clock::now()) {
                Duration::ZERO => IDLE_PAUSE,
                pause => pause.min(self.max_pause),
            }),
            _ => None,
        }
    }

    /// Adopts the views for which it is time. Returns whether others wait.
    fn advance_adoptions(&self) -> bool {
        let now = clock::now();
        let mut is_adopting = false;
        for PoolLink { pool, .. } in self.links.lock().iter_mut().filter(|it| it.pool.is_adopting()) {
            pool.can_publish(now);
            is_adopting |= pool.is_adopting();
        }
        is_adopting
    }
}

impl PoolLink {
    /// Runs with the link. A panic, which was logged when it happened, fails the pool's requests alone.
    fn run(&mut self, run: impl FnOnce(&mut Link, &mut UpdatedPool)) {
        let Self { link, pool, .. } = self;
        if catch_unwind(AssertUnwindSafe(|| run(link, pool))).is_err() {
            link.fail(pool, clock::now());
        }
    }
}
