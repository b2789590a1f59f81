//! A thread that polls the agent over connections of its own.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::io;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Instant;

use endpoint_picker_engine::agent::{CallError, CallId};

use super::connection::Connection;
use super::stop::Stop;
use super::thread::Thread;
use super::updater::Updater;
use crate::clock;
use crate::config::AgentAccess;
use crate::users::Users;

/// The number of every request: there is never more than one.
const CALL: CallId = 0;

/// Time between two wakes of every filter configuration.
const SECOND: Duration = Duration::from_secs(1);

/// Starts a thread that keeps a pool up to date, and wakes its users once a second. Its end takes up to a second if it is connecting
/// to an agent; anything else is interrupted.
pub(crate) fn start(mut updater: Updater, access: &AgentAccess, users: Arc<Users>) -> io::Result<Thread> {
    let access = access.clone();
    Thread::start("epp-agent", move |stop| {
        let mut connection = Connection::new(&access, Arc::clone(stop));
        let mut last_wake: Option<Instant> = None;
        while !stop.is_stopped() {
            let round = catch_unwind(AssertUnwindSafe(|| round(&mut updater, &mut connection, stop)));
            if round.is_err() {
                // The panic was logged when it happened. What the agent sent is not tried again at once.
                let failed = || Err(CallError::NoAnswer("a defect of the picker".to_owned()));
                if updater.awaits_report(CALL) {
                    updater.finish_report(failed(), clock::now());
                }
                updater.finish_poll(failed(), clock::now());
            }
            if last_wake.is_none_or(|last| last.elapsed() >= SECOND) {
                last_wake = Some(Instant::now());
                users.wake_all();
            }
            stop.wait(updater.pause(clock::now()));
        }
    })
}

/// Sends the requests that are due.
fn round(updater: &mut Updater, connection: &mut Connection, stop: &Stop) {
    let now = clock::now();
    if let Some(report) = updater.next_report(now) {
        updater.report_sent(CALL);
        let answer = connection.send(&report, now);
        if !stop.is_stopped() {
            updater.finish_report(answer, clock::now());
        }
    }
    let now = clock::now();
    if let Some(poll) = updater.next_poll(now) {
        updater.poll_sent(CALL);
        let answer = connection.send(&poll, now);
        if !stop.is_stopped() && !updater.finish_poll(answer, clock::now()) {
            connection.use_next();
        }
    }
}
