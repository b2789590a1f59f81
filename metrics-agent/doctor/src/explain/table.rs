//! An explanation as text.

use core::fmt;

use endpoint_picker::decision::Outcome;
use endpoint_picker::decision::explanation::{Score, Verdict};
use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::pool::Endpoints;
use endpoint_picker_wire::v1;
use metrics_agent_status::columns::{self, NOTHING, counted, printable};

use super::{DRAWS, DecisionReport, ExplainResult, ExplainedChoice, ShadowReport};

const LIMITS: &str = "Nothing but the snapshot is known here. A filter also has its prompts, sessions, requests in flight and recent \
failures:\nscorers that use these give all endpoints the same score.";

impl fmt::Display for ExplainResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pool, path) = (printable(self.pool.name()), printable(&self.path));
        let DecisionReport { requested_model, model, priority, prompt_tokens, acting, shadow } =
            match &self.decision {
                Ok(decision) => decision,
                Err(rejection) => {
                    writeln!(f, "pool {pool}, POST {path}: rejected before any endpoint was considered\n")?;
                    return write_rejection(f, rejection);
                }
            };
        let model = printable(model);
        writeln!(
            f,
            "pool {pool}, POST {path}: model {model:?}, {prompt_tokens} prompt tokens, priority {priority}\n"
        )?;
        if let Some(wait) = &self.wait {
            writeln!(f, "the request {wait}, and then:\n")?;
        }
        let section = |choice| TableSection { pool: &self.pool, seed: self.seed, choice };
        section(acting).write(f)?;
        let requested = requested_model.as_deref().map(printable);
        if let Some(requested) = requested.filter(|requested| acting.is_routed() && *requested != model) {
            writeln!(
                f,
                "  the request to the server has model {model:?}; the client's request and its response have {requested:?}"
            )?;
        }
        match shadow {
            None => {}
            Some(Err(problem)) => {
                writeln!(f, "\nthe shadow configuration is ignored: {}", printable(problem))?;
            }
            Some(Ok(shadow)) => {
                writeln!(f, "\nthe shadow configuration would decide:\n")?;
                section(&shadow.choice).write(f)?;
                agreement(f, shadow)?;
            }
        }
        writeln!(f, "\n{LIMITS}")?;
        kv_usage_metrics(f, &self.kv_usage_metrics)
    }
}

/// The metrics that KV usage is read from, which depend on the release of an engine.
fn kv_usage_metrics(f: &mut fmt::Formatter<'_>, uses: &[v1::MetricUse]) -> fmt::Result {
    if uses.is_empty() {
        return Ok(());
    }
    let uses = uses.iter().map(|v1::MetricUse { metric, endpoints }| {
        format!("{} ({})", printable(metric), counted(*endpoints, "endpoint"))
    });
    writeln!(f, "KV usage is read from {}.", uses.collect::<Vec<_>>().join(", "))
}

/// The decision of one configuration.
struct TableSection<'a> {
    pool: &'a Endpoints,
    seed: u64,
    choice: &'a ExplainedChoice,
}

impl TableSection<'_> {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table(f)?;
        writeln!(f)?;
        self.outcome(f)
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let explanation = &self.choice.explanation;
        let scorers = explanation.endpoints.iter().find_map(|endpoint| scores(&endpoint.verdict));
        let scorers = scorers.unwrap_or_default();
        let header = ["ENDPOINT".to_owned(), "ADDRESS".to_owned()]
            .into_iter()
            .chain(
                scorers.iter().map(|Score { scorer, weight, .. }| format!("{} x{weight}", printable(scorer))),
            )
            .chain(["TOTAL", "CHANCE", "VERDICT"].map(str::to_owned));
        let rows =
            explanation.ranked().map(|(index, endpoint)| self.row(index, &endpoint.verdict, scorers.len()));
        columns::write(f, header.collect::<Vec<_>>(), rows, 2..scorers.len() + 4)?;
        self.details(f)
    }

    /// Predicted latencies, and the terms of scores for scorers that explain them.
    fn details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, endpoint) in self.choice.explanation.ranked() {
            for prediction in &endpoint.predictions {
                let name = printable(self.pool.as_slice()[index].name());
                writeln!(f, "{name}, {prediction}")?;
            }
        }
        for (index, endpoint) in self.choice.explanation.ranked() {
            for Score { scorer, detail, .. } in scores(&endpoint.verdict).unwrap_or_default() {
                let Some(detail) = detail else { continue };
                let name = printable(self.pool.as_slice()[index].name());
                writeln!(f, "{}, {name}: {detail}", printable(scorer))?;
            }
        }
        Ok(())
    }

    fn row(&self, index: usize, verdict: &Verdict, scorers: usize) -> Vec<String> {
        let endpoint = &self.pool.as_slice()[index];
        let mut row = vec![printable(endpoint.name()), endpoint.printed_address().to_owned()];
        match verdict {
            Verdict::Scored { scores, total, place } => {
                row.extend(scores.iter().map(|score| format!("{:.3}", score.score)));
                let place = match place {
                    Some(0) => "picked".to_owned(),
                    Some(place) => format!("picked as number {}, if those before fail", place + 1),
                    None => String::new(),
                };
                row.extend([format!("{total:.3}"), self.chance(index), place]);
            }
            Verdict::Excluded(_) | Verdict::Dropped(_) | Verdict::Candidate => {
                row.extend(vec![NOTHING.to_owned(); scorers + 2]);
                row.push(verdict.to_string());
            }
        }
        row
    }

    fn chance(&self, endpoint: usize) -> String {
        format!("{:.1} %", self.choice.draws[endpoint] as f64 * 100.0 / DRAWS as f64)
    }

    fn outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExplainedChoice { explanation, headers, draws } = self.choice;
        let endpoints = match &explanation.outcome {
            Outcome::Route(endpoints) => endpoints,
            Outcome::Reject(rejection) => return write_rejection(f, rejection),
            Outcome::Abstain { .. } => return writeln!(f, "left to Envoy's load balancing"),
        };
        writeln!(f, "routed to {}", addresses(self.pool, endpoints))?;
        for (name, value) in headers {
            writeln!(f, "  with the header {name}: {value}")?;
        }
        self.chances(f, endpoints)?;
        let refused = DRAWS - draws.iter().sum::<u64>();
        if refused > 0 {
            writeln!(f, "  of {DRAWS} such requests {refused} would be rejected")?;
        }
        Ok(())
    }

    /// The random part of the choice.
    fn chances(&self, f: &mut fmt::Formatter<'_>, picked: &[usize]) -> fmt::Result {
        let explanation = &self.choice.explanation;
        let totals = explanation.endpoints.iter().map(|endpoint| match endpoint.verdict {
            Verdict::Scored { total, .. } => Some(total),
            Verdict::Excluded(_) | Verdict::Dropped(_) | Verdict::Candidate => None,
        });
        let totals: Vec<Option<f64>> = totals.collect();
        let highest = totals.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let best: Vec<usize> = (0..totals.len()).filter(|&index| totals[index] == Some(highest)).collect();
        let (Some(picker), Some(first)) = (&explanation.picker, picked.first()) else { return Ok(()) };
        let (picker, seed) = (printable(picker), self.seed);
        if !best.contains(first) {
            writeln!(f, "  {picker} drew it (--seed {seed}), although other endpoints have a higher total")
        } else if best.len() > 1 {
            let tied = addresses(self.pool, &best);
            writeln!(f, "  a tie: {tied} have the highest total; {picker} drew one of them (--seed {seed})")
        } else {
            Ok(())
        }
    }
}

fn agreement(f: &mut fmt::Formatter<'_>, shadow: &ShadowReport) -> fmt::Result {
    write!(f, "the shadow {}", if shadow.agrees { "agrees" } else { "disagrees" })?;
    match shadow.agreed {
        // Independent of random numbers.
        0 | DRAWS => writeln!(f),
        agreed => writeln!(f, "; it agrees on {agreed} of {DRAWS} such requests"),
    }
}

fn scores(verdict: &Verdict) -> Option<&[Score]> {
    match verdict {
        Verdict::Scored { scores, .. } => Some(scores),
        Verdict::Excluded(_) | Verdict::Dropped(_) | Verdict::Candidate => None,
    }
}

fn addresses(pool: &Endpoints, endpoints: &[usize]) -> String {
    let addresses = endpoints.iter().map(|&endpoint| pool.as_slice()[endpoint].printed_address());
    addresses.collect::<Vec<_>>().join(", ")
}

fn write_rejection(f: &mut fmt::Formatter<'_>, rejection: &Rejection) -> fmt::Result {
    writeln!(f, "the client is answered {}", printable(&rejection.to_string()))?;
    let Some(reason) = rejection.reason else { return Ok(()) };
    writeln!(f, "  with the header x-llm-d-request-dropped-reason: {}", reason.as_str())
}
