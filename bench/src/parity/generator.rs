//! Cases drawn from a seed.
//!
//! The state of a picker must not depend on chance, or a prediction could not know it: a case that several
//! endpoints are best for, and that leaves traces, is given a subset hint of one of them.

mod apis;
mod body;
mod odd;

use super::case::{self, Adapters, Case, Request, ServerState};
use super::draw::Draw;
use super::ours::{Expected, Ours, Prediction};
use super::setup::{Comparison, Setup, Varies};
use anyhow::{Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Adapters that servers have and requests ask for.
const ADAPTERS: [&str; 4] = ["sql-adapter", "law-adapter", "med-adapter", "tax-adapter"];

/// Draws the cases of one setup, each with the outcome that our rules predict.
#[derive(Debug)]
pub struct Generator<'a> {
    setup: &'a Setup,
    /// Our rules, with what the EPP records.
    of_epp: Ours,
    /// Our rules, with what our filter records.
    of_filter: Ours,
    /// Our rules, without any record: what a plugin knows just now, it does not record again.
    without_record: Ours,
    draw: Draw,
    drawn: usize,
    /// Consecutive cases that find the servers in one state.
    cases_of_a_state: usize,
    servers: Vec<ServerState>,
    /// Whether a filter reads the header of conformance tests.
    names_endpoints: bool,
}

impl<'a> Generator<'a> {
    /// Equal seeds give equal cases.
    pub fn new(comparison: &'a Comparison, seed: u64, cases_of_a_state: usize) -> Result<Self> {
        Ok(Self {
            setup: comparison.setup,
            of_epp: Ours::with_record_of_epp(comparison)?,
            of_filter: Ours::with_record_of_filter(comparison)?,
            without_record: Ours::with_record_of_epp(comparison)?,
            draw: Draw::new(seed),
            drawn: 0,
            cases_of_a_state,
            servers: Vec::new(),
            names_endpoints: comparison.has_plugin("header-based-testing-filter"),
        })
    }

    /// The next case with its predictions; the ledgers change by them.
    pub fn next_case(&mut self) -> Result<Drawn> {
        if self.drawn.is_multiple_of(self.cases_of_a_state) {
            self.servers = self.servers();
        }
        self.drawn += 1;
        let case = self.case();
        self.of_epp.hold(&case)?;
        self.of_filter.hold(&case)?;
        let mut drawn = self.predict(case)?;
        while self.setup.varies(Varies::NamedServers) && self.leaves_records_to_chance(&drawn)? {
            // A hint would leave no server to name.
            self.servers = self.servers();
            let case = self.case();
            drawn = self.predict(case)?;
        }
        if self.leaves_records_to_chance(&drawn)?
            && let Expected::Served { best, .. } = &drawn.of_epp.expected
        {
            let mut case = drawn.case;
            case.request.subset = Some(vec![*self.draw.one_of(best)]);
            drawn = self.predict(case)?;
        }
        let request = &drawn.case.request;
        ensure!(!self.leaves_records_to_chance(&drawn)?, "a subset of one leaves no choice: {request}");
        self.of_epp.remember(&drawn.of_epp);
        self.of_filter.remember(&drawn.of_filter);
        let blocks = self.of_epp.most_blocks().max(self.of_filter.most_blocks());
        ensure!(self.setup.forgets_alike(blocks), "{blocks} blocks may fill an index: {request}");
        Ok(drawn)
    }

    fn predict(&self, case: Case) -> Result<Drawn> {
        let (of_epp, of_filter) = (self.of_epp.predict(&case)?, self.of_filter.predict(&case)?);
        Ok(Drawn { case, of_epp, of_filter })
    }

    /// Whether chance decides where plugins record a case. One that records nothing where it was predicted
    /// to go may record something elsewhere.
    fn leaves_records_to_chance(&self, drawn: &Drawn) -> Result<bool> {
        let of_both = [&drawn.of_epp, &drawn.of_filter];
        if of_both.iter().all(|prediction| prediction.is_forced()) {
            return Ok(false);
        }
        let leaves_traces = of_both.iter().any(|prediction| prediction.leaves_traces());
        Ok(leaves_traces || self.without_record.predict(&drawn.case)?.leaves_traces())
    }

    fn case(&mut self) -> Case {
        Case { servers: self.servers.clone(), held: self.held(), request: self.request() }
    }

    fn servers(&mut self) -> Vec<ServerState> {
        let all_equal = self.draw.chance(10);
        let first = self.server();
        (0..self.setup.servers).map(|_| if all_equal { first.clone() } else { self.server() }).collect()
    }

    fn server(&mut self) -> ServerState {
        let draw = &mut self.draw;
        let waiting = if draw.chance(40) { 0 } else { draw.below(12) };
        let lora = self.setup.varies(Varies::Adapters).then(|| Adapters {
            max: 3,
            running: draw.some_of(&ADAPTERS, 2),
            waiting: draw.some_of(&ADAPTERS, 2),
        });
        let kv = draw.below(1_000) as f64 / 1_000.0;
        ServerState { waiting, running: draw.below(9), kv, lora, cache: self.setup.cache }
    }

    fn held(&mut self) -> Vec<usize> {
        // The first cases have one candidate each, and a server at work may be none.
        if !self.setup.varies(Varies::Held) || self.drawn <= self.setup.servers {
            return Vec::new();
        }
        (0..self.setup.servers).map(|_| self.draw.index(4)).collect()
    }

    fn request(&mut self) -> Request {
        let mut request = self.request_without_headers();
        if self.setup.varies(Varies::SessionTokens) && self.draw.chance(70) {
            let endpoint =
                format!("default/{}", Setup::endpoint_name(self.draw.index(self.setup.servers + 1)));
            request.headers.push(("x-session-token".to_owned(), BASE64_STANDARD.encode(endpoint)));
        }
        // Where a producer of tokens fails, the EPP asks no later producer, so a session may be missing.
        let is_read = !odd::UNREAD.contains(&request.path.as_str());
        if self.setup.varies(Varies::Sessions) && is_read && self.draw.chance(80) {
            let session = format!("session-{}", self.draw.below(6));
            request.headers.push(("x-session-id".to_owned(), session));
        }
        if self.setup.varies(Varies::AgentSessions) && self.draw.chance(80) {
            let name = *self.draw.one_of(&["x-team", "x-session-affinity", "session-id"]);
            request.headers.push((name.to_owned(), format!("agent-{}", self.draw.below(5))));
        }
        if self.setup.varies(Varies::Tiers) && self.draw.chance(60) {
            request
                .headers
                .push(("x-tier".to_owned(), (*self.draw.one_of(&["gold", "silver", "lead"])).to_owned()));
        }
        if self.setup.varies(Varies::Profiles) && self.draw.chance(40) {
            let name = *self.draw.one_of(&["decode", "other", "other", "none"]);
            request.headers.push(("epp-profile".to_owned(), name.to_owned()));
        }
        if self.names_endpoints && self.draw.chance(90) {
            let servers: Vec<String> = (0..self.setup.servers)
                .filter(|_| self.draw.chance(60))
                .map(case::address_placeholder)
                .collect();
            request.headers.push(("test-epp-endpoint-selection".to_owned(), servers.join(", ")));
        }
        request
    }

    fn request_without_headers(&mut self) -> Request {
        let adapters = self.setup.varies(Varies::Adapters);
        if self.setup.varies(Varies::NamedServers) {
            let has_media = self.setup.varies(Varies::Media) && self.draw.chance(40);
            return if has_media { self.draw.with_images() } else { self.draw.ordinary(adapters) };
        }
        // The first requests go to one server each, so that none is left that was never used.
        if self.drawn <= self.setup.servers {
            let subset = Some(vec![self.drawn - 1]);
            return Request { subset, ..self.draw.ordinary(adapters) };
        }
        if self.setup.varies(Varies::Apis) {
            return Draw::any_api(self.drawn);
        }
        if self.setup.varies(Varies::OddRequests) && self.draw.chance(35) {
            return self.draw.odd(self.setup.servers);
        }
        if self.setup.varies(Varies::Media) && self.draw.chance(70) {
            return self.draw.with_images();
        }
        let subset = self.draw.chance(20).then(|| {
            let servers: Vec<usize> = (0..self.setup.servers).filter(|_| self.draw.chance(60)).collect();
            if servers.is_empty() { vec![0] } else { servers }
        });
        Request { subset, ..self.draw.ordinary(adapters) }
    }
}

/// A case, and its ends by our rules with two records.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The case.
    pub case: Case,
    /// Its ends by what the EPP has recorded of the cases before.
    pub of_epp: Prediction,
    /// Its ends by what our filter has recorded of them.
    pub of_filter: Prediction,
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint_picker::epp_rules::EppRules;

    #[test]
    fn only_the_epp_finds_the_prompt_of_a_conversation_again() -> Result<()> {
        let setup = Setup::named("apis")?;
        let comparison = Comparison::new(setup, EppRules::V010, 0)?;
        let mut generator = Generator::new(&comparison, 1, 1)?;
        let mut apart = Vec::new();
        for _ in 0..setup.cases {
            let Drawn { case, of_epp, of_filter } = generator.next_case()?;
            if of_epp.expected != of_filter.expected {
                apart.push(case.request.path);
            }
        }
        assert_eq!(apart, ["/v1/conversations", "/v1/conversations"], "of three");
        Ok(())
    }
}
