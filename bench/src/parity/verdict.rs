//! Whether the EPP and our rules agree on a case.

use super::case::{Answer, Case, NAMING, Refusal, SESSION};
use super::ours::{Expected, SAME_SCORE};
use super::setup::Comparison;
use endpoint_picker::decision::rejection::DroppedReason;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::AddAssign;

/// How a response of the EPP compares with our rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The same.
    Agree,
    /// Not the same, for a known reason.
    KnownDifference(Difference),
    /// Not the same.
    Disagree,
}

/// The known differences between our rules and the EPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A path that no parser claims: the EPP's later versions let it pass, as we do.
    UnclaimedPath,
    /// SGLang's own path: the EPP has a parser for it in later versions.
    SglangPath,
    /// No candidate: the EPP's later versions name the reason, as we do.
    NoCandidatesReason,
    /// Filters leave nothing: the EPP's later versions have another message and name the reason, as we do.
    FilteredOutReason,
    /// No profile ran: the EPP's message ends with the request's id.
    RequestId,
    /// A request without a body: the EPP does not look at the subset hint, and its response names no session.
    WithoutBody,
    /// A body that is not a JSON object: the message is of another decoder.
    DecoderWords,
    /// A data-parallel rank: the EPP has no scores in its metadata, because it makes a new endpoint of it.
    RankScores,
}

/// Beginnings of messages that end with the text of the EPP's JSON decoder.
const DECODER_PREFIXES: [&str; 3] = [
    "error unmarshaling request bodyMap: ",
    "error unmarshaling request body: ",
    "invalid generate request: ",
];

/// SGLang's own path.
const SGLANG: &str = "/generate";

/// The message when no profile ran.
const NO_PROFILE: &str = "failed to find target endpoint: failed to run any scheduler profile";

/// Length of the ids that Envoy gives to requests.
const REQUEST_ID: usize = 36;

impl Verdict {
    /// Compares the prediction of our rules with the response of the EPP.
    pub fn on(comparison: &Comparison, case: &Case, expected: &Expected, answer: &Answer) -> Self {
        if expected.agrees(answer) {
            return Self::Agree;
        }
        Difference::ALL
            .into_iter()
            .find(|difference| difference.explains(comparison, case, expected, answer))
            .map_or(Self::Disagree, Self::KnownDifference)
    }
}

impl Difference {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::SglangPath,
        Self::UnclaimedPath,
        Self::NoCandidatesReason,
        Self::FilteredOutReason,
        Self::RequestId,
        Self::WithoutBody,
        Self::DecoderWords,
        Self::RankScores,
    ];

    /// Whether it is all in which this response differs from our rules.
    fn explains(self, comparison: &Comparison, case: &Case, expected: &Expected, answer: &Answer) -> bool {
        let is_v010 = !comparison.rules.is_after_v010();
        match (self, expected, answer) {
            (Self::SglangPath, expected, Answer::Refused(theirs)) if case.request.path == SGLANG => {
                is_v010 && is_unclaimed(theirs, case) && is_decided(expected)
            }
            (Self::UnclaimedPath, expected, Answer::Refused(theirs)) if case.request.path != SGLANG => {
                is_v010 && is_unclaimed(theirs, case) && is_decided(expected)
            }
            (Self::NoCandidatesReason, Expected::Refused(ours), Answer::Refused(theirs)) => {
                is_v010
                    && has_reason(ours, DroppedReason::NoEndpoints)
                    && *theirs == Refusal { reason: None, ..ours.clone() }
            }
            (Self::FilteredOutReason, Expected::Refused(ours), Answer::Refused(theirs)) => {
                let of_profile = "failed to find target endpoint: failed to run scheduler profile '";
                is_v010
                    && has_reason(ours, DroppedReason::Saturated)
                    && theirs.message.starts_with(of_profile)
                    && *theirs == Refusal { reason: None, message: theirs.message.clone(), ..ours.clone() }
            }
            (Self::RequestId, Expected::Refused(ours), Answer::Refused(theirs)) => {
                let id = theirs
                    .message
                    .strip_prefix(NO_PROFILE)
                    .and_then(|rest| rest.strip_prefix(" for request "));
                ours.message == NO_PROFILE
                    && id.is_some_and(|id| id.len() == REQUEST_ID && !id.contains(' '))
                    && *theirs == Refusal { message: theirs.message.clone(), ..ours.clone() }
            }
            (Self::RankScores, Expected::Served { .. }, Answer::Served { scores, .. }) => {
                comparison.setup.has_ranks() && expected.allows(answer) && scores.is_empty()
            }
            (
                Self::WithoutBody,
                Expected::Served { best, totals, named: ours },
                Answer::Served { by, scores, named },
            ) => {
                let ignores_hint = case.request.subset.is_some() && *by < comparison.setup.servers;
                let is_unmarked = ours.contains_key(SESSION) && best.contains(by);
                let is_unrated = totals.is_empty() && scores.is_empty() && named.is_empty();
                case.request.body.is_none() && is_unrated && (ignores_hint || is_unmarked)
            }
            (Self::DecoderWords, Expected::Refused(ours), Answer::Refused(theirs)) => {
                let prefix = DECODER_PREFIXES.iter().find(|prefix| ours.message.starts_with(**prefix));
                prefix.is_some_and(|prefix| theirs.message.starts_with(prefix))
                    && case.request.body.as_deref().is_some_and(|body| !is_object(body))
                    && *theirs == Refusal { message: theirs.message.clone(), ..ours.clone() }
            }
            _ => false,
        }
    }

    /// The beginning of its row in docs/reference/differences.md.
    pub fn row(self) -> &'static str {
        match self {
            Self::UnclaimedPath | Self::SglangPath => "Paths that v0.10 does not claim",
            Self::NoCandidatesReason | Self::FilteredOutReason | Self::RequestId => "Reasons of rejections",
            Self::WithoutBody => "Requests without a body",
            Self::DecoderWords => "Bodies that are not a JSON object",
            Self::RankScores => "`data-parallel-profile-handler`",
        }
    }
}

/// Whether no parser of the EPP claims the path of this case.
fn is_unclaimed(theirs: &Refusal, case: &Case) -> bool {
    let path = theirs.message.strip_prefix("no parser registered matching path suffix for: ");
    theirs.status == 400 && theirs.reason.is_none() && path == Some(case.request.path.as_str())
}

/// Whether our rules let the request pass to the decision, which may find no endpoint.
fn is_decided(expected: &Expected) -> bool {
    match expected {
        Expected::Served { .. } => true,
        Expected::Refused(ours) => {
            let reasons = [DroppedReason::NoEndpoints, DroppedReason::Saturated];
            ours.message == NO_PROFILE || reasons.into_iter().any(|reason| has_reason(ours, reason))
        }
    }
}

fn has_reason(ours: &Refusal, reason: DroppedReason) -> bool {
    ours.reason.as_deref() == Some(reason.as_str())
}

/// Whether a body is an object of JSON, as every API has it.
fn is_object(body: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(body).is_ok()
}

impl Expected {
    /// Whether this response is possible, and the picker rated the same endpoints, all of them the same.
    pub fn agrees(&self, answer: &Answer) -> bool {
        let has_same_scores = match (self, answer) {
            (Self::Served { totals, .. }, Answer::Served { scores, .. }) => {
                let mut pairs = totals.values().zip(scores.values());
                totals.keys().eq(scores.keys())
                    && pairs.all(|(ours, theirs)| (ours - theirs).abs() < SAME_SCORE)
            }
            _ => true,
        };
        self.allows(answer) && has_same_scores
    }

    /// Whether this response is possible; ties are broken at random.
    pub fn allows(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Self::Served { best, named, .. }, Answer::Served { by, named: theirs, .. }) => {
                let allows = |header| {
                    let server = theirs.get(header).copied();
                    named.get(header).map_or(server.is_none(), |servers| servers.contains(&server))
                };
                best.contains(by) && NAMING.into_iter().all(allows)
            }
            (Self::Refused(ours), Answer::Refused(theirs)) => ours == theirs,
            _ => false,
        }
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SglangPath => "SGLang's path",
            Self::UnclaimedPath => "path that no parser claims",
            Self::NoCandidatesReason => "no candidates without a reason",
            Self::FilteredOutReason => "filtered out without a reason",
            Self::RequestId => "id of the request in the message",
            Self::WithoutBody => "request without a body",
            Self::DecoderWords => "message of the JSON decoder",
            Self::RankScores => "scores of ranks",
        })
    }
}

/// Numbers of cases by their verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    verdicts: BTreeMap<Verdict, usize>,
    filter_strays: usize,
    rewritten_bodies: usize,
}

impl VerdictCounts {
    /// Counts the EPP's response to a case, and whether our filter followed our rules.
    pub fn count(&mut self, verdict: Verdict, filter_follows_rules: bool) {
        *self.verdicts.entry(verdict).or_default() += 1;
        self.filter_strays += usize::from(!filter_follows_rules);
    }

    /// Counts a body that went through the EPP.
    pub fn count_body(&mut self, unchanged: bool) {
        self.rewritten_bodies += usize::from(!unchanged);
    }

    /// All cases.
    pub fn cases(&self) -> usize {
        self.verdicts.values().sum()
    }

    /// Cases with this verdict.
    pub fn of(&self, verdict: Verdict) -> usize {
        self.verdicts.get(&verdict).copied().unwrap_or_default()
    }

    /// Cases in which the EPP does not agree with our rules, and those in which our filter does not.
    pub fn disagreements(&self) -> usize {
        self.of(Verdict::Disagree) + self.filter_strays
    }
}

impl AddAssign for VerdictCounts {
    fn add_assign(&mut self, other: Self) {
        for (verdict, count) in other.verdicts {
            *self.verdicts.entry(verdict).or_default() += count;
        }
        self.filter_strays += other.filter_strays;
        self.rewritten_bodies += other.rewritten_bodies;
    }
}

impl Display for VerdictCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.verdicts.iter().filter_map(|(verdict, count)| match verdict {
            Verdict::KnownDifference(difference) => Some((difference, count)),
            _ => None,
        });
        let cases = self.cases();
        let known_count: usize = known.clone().map(|(_, count)| count).sum();
        let compared = cases - known_count;
        let agree = self.of(Verdict::Agree);
        let percent = 100.0 * agree as f64 / compared.max(1) as f64;
        write!(f, "{cases} cases: {agree} of {compared} agree ({percent:.1} %)")?;
        write!(f, ", {} disagree, {} strays of our filter", self.of(Verdict::Disagree), self.filter_strays)?;
        write!(f, ", {known_count} known differences")?;
        for (difference, count) in known {
            write!(f, ", {difference} (row {}): {count}", difference.row())?;
        }
        write!(f, ", {} bodies re-marshalled by the EPP", self.rewritten_bodies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::case::Request;
    use crate::parity::setup::Setup;
    use endpoint_picker::epp_rules::EppRules;

    fn verdict(rules: EppRules, request: &Request, expected: &Expected, answer: &Answer) -> Verdict {
        let setup = Setup::named("default").expect("a setup");
        let comparison = Comparison::new(setup, rules, 0).expect("its configuration");
        let case = Case { servers: vec![], held: vec![], request: request.clone() };
        Verdict::on(&comparison, &case, expected, answer)
    }

    fn post(path: &str, body: &str) -> Request {
        Request { path: path.to_owned(), body: Some(body.to_owned()), ..Request::default() }
    }

    fn refused(status: u16, reason: Option<&str>, message: &str) -> Refusal {
        Refusal { status, reason: reason.map(str::to_owned), message: message.to_owned() }
    }

    fn served_by(best: &[usize]) -> Expected {
        Expected::Served { best: best.to_vec(), totals: BTreeMap::new(), named: BTreeMap::new() }
    }

    #[test]
    fn only_v010_leaves_paths_unclaimed_and_only_where_our_rules_pass_them() {
        let answer = |path: &str| {
            let message = format!("no parser registered matching path suffix for: {path}");
            Answer::Refused(refused(400, None, &message))
        };
        let of = |rules, path: &str, expected: &Expected| {
            verdict(rules, &post(path, "{}"), expected, &answer(path))
        };
        let passed = served_by(&[0, 1, 2, 3]);
        let known = Verdict::KnownDifference;
        assert_eq!(of(EppRules::V010, "/v1/new", &passed), known(Difference::UnclaimedPath));
        assert_eq!(of(EppRules::V010, "/generate", &passed), known(Difference::SglangPath));
        assert_eq!(of(EppRules::V010, "/inference/v1/generate", &passed), known(Difference::UnclaimedPath));
        assert_eq!(of(EppRules::Ebab68792, "/v1/new", &passed), Verdict::Disagree);
        let without_endpoint = Expected::Refused(refused(429, None, NO_PROFILE));
        assert_eq!(of(EppRules::V010, "/v1/new", &without_endpoint), known(Difference::UnclaimedPath));
        assert_eq!(of(EppRules::Ebab68792, "/v1/new", &without_endpoint), Verdict::Disagree);
        let of_ours = Expected::Refused(refused(400, None, "model not found in request body"));
        assert_eq!(of(EppRules::V010, "/v1/new", &of_ours), Verdict::Disagree);
        let other = verdict(EppRules::V010, &post("/v1/new", "{}"), &passed, &answer("/v1/other"));
        assert_eq!(other, Verdict::Disagree);
    }

    #[test]
    fn the_words_of_a_decoder_are_a_difference_only_of_bodies_that_are_no_object() {
        let message = |end: &str| refused(400, None, &format!("error unmarshaling request bodyMap: {end}"));
        let of = |body: &str, status| {
            let theirs = Refusal { status, ..message("unexpected end of JSON input") };
            let request = post("/v1/completions", body);
            verdict(EppRules::V010, &request, &Expected::Refused(message("EOF")), &Answer::Refused(theirs))
        };
        assert_eq!(of("{", 400), Verdict::KnownDifference(Difference::DecoderWords));
        assert_eq!(of("[]", 400), Verdict::KnownDifference(Difference::DecoderWords));
        assert_eq!(of(r#"{"model":"m"}"#, 400), Verdict::Disagree);
        assert_eq!(of("{", 503), Verdict::Disagree);
    }

    #[test]
    fn a_reason_that_v010_lacks_must_be_there_in_the_later_commit() {
        let no_endpoints = refused(503, Some("rejected-no-endpoints"), "no endpoint");
        let saturated =
            refused(429, Some("rejected-saturated"), "no endpoints available for the given request");
        let of_profile = "failed to find target endpoint: failed to run scheduler profile 'default'";
        let of = |rules, ours: &Refusal, theirs: &Refusal| {
            let (expected, answer) = (Expected::Refused(ours.clone()), Answer::Refused(theirs.clone()));
            verdict(rules, &post("/v1/completions", "{}"), &expected, &answer)
        };
        for (ours, theirs, difference) in [
            (&no_endpoints, refused(503, None, "no endpoint"), Difference::NoCandidatesReason),
            (&saturated, refused(429, None, of_profile), Difference::FilteredOutReason),
        ] {
            assert_eq!(of(EppRules::V010, ours, &theirs), Verdict::KnownDifference(difference));
            assert_eq!(of(EppRules::Ebab68792, ours, &theirs), Verdict::Disagree);
            assert_eq!(of(EppRules::V010, ours, &Refusal { status: 500, ..theirs }), Verdict::Disagree);
        }
        let ours = refused(429, None, NO_PROFILE);
        let with_id = |id: &str| refused(429, None, &format!("{NO_PROFILE} for request {id}"));
        let id = "11fc834a-118e-4644-9374-f605b0d2f4df";
        let known = Verdict::KnownDifference(Difference::RequestId);
        assert_eq!(of(EppRules::Ebab68792, &ours, &with_id(id)), known);
        assert_eq!(of(EppRules::V010, &ours, &with_id("a")), Verdict::Disagree);
    }

    #[test]
    fn a_request_without_a_body_may_only_miss_the_hint_or_the_session() {
        let request = |subset| Request { path: String::from("/v1/models"), subset, ..Request::default() };
        let answer = |by| Answer::Served { by, scores: BTreeMap::new(), named: BTreeMap::new() };
        let of = |subset, expected: &Expected, by| {
            verdict(EppRules::V010, &request(subset), expected, &answer(by))
        };
        let known = Verdict::KnownDifference(Difference::WithoutBody);
        assert_eq!(of(Some(vec![1]), &served_by(&[1]), 0), known);
        assert_eq!(of(None, &served_by(&[1]), 0), Verdict::Disagree);
        let named = BTreeMap::from([(SESSION, vec![Some(1)])]);
        let marked = Expected::Served { best: vec![1], totals: BTreeMap::new(), named };
        assert_eq!(of(None, &marked, 1), known);
        assert_eq!(of(None, &marked, 0), Verdict::Disagree);
    }
}
