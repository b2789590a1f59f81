//! Whether the EPP and our rules agree on a case.

use super::case::{Answer, Case, NAMING, Refusal, SESSION};
use super::ours::{Expected, SAME_SCORE};
use super::setup::Comparison;
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

/// The known differences between our rules and version v0.10.0 of the EPP.
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
    /// A request without a body: the EPP does not look at the subset hint, and its response names no session.
    WithoutBody,
    /// A body that is not JSON: the message is of another decoder.
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

impl Verdict {
    /// Compares the prediction of our rules with the response of the EPP.
    pub fn on(comparison: &Comparison, case: &Case, expected: &Expected, answer: &Answer) -> Self {
        if expected.allows(answer) && same_scores(expected, answer) {
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
    pub const ALL: [Self; 7] = [
        Self::SglangPath,
        Self::UnclaimedPath,
        Self::NoCandidatesReason,
        Self::FilteredOutReason,
        Self::WithoutBody,
        Self::DecoderWords,
        Self::RankScores,
    ];

    fn explains(self, comparison: &Comparison, case: &Case, expected: &Expected, answer: &Answer) -> bool {
        let refusals = match (expected, answer) {
            (Expected::Refused(ours), Answer::Refused(theirs)) => Some((ours, theirs)),
            _ => None,
        };
        match self {
            Self::SglangPath => is_unclaimed(answer) && case.request.path.ends_with("/generate"),
            Self::UnclaimedPath => is_unclaimed(answer),
            Self::NoCandidatesReason => refusals.is_some_and(|(ours, theirs)| {
                ours.status == 503 && *theirs == Refusal { reason: None, ..ours.clone() }
            }),
            Self::FilteredOutReason => refusals.is_some_and(|(ours, theirs)| {
                let of_profile = "failed to find target endpoint: failed to run scheduler profile";
                let is_filtered_out = ours.message == "no endpoints available for the given request"
                    && theirs.message.starts_with(of_profile);
                // The EPP adds the request's id.
                let is_unknown = theirs.message.starts_with(&format!("{} for request ", ours.message));
                theirs.status == ours.status && theirs.reason.is_none() && (is_filtered_out || is_unknown)
            }),
            Self::RankScores => {
                comparison.setup.has_ranks()
                    && expected.allows(answer)
                    && matches!(answer, Answer::Served { scores, .. } if scores.is_empty())
            }
            Self::WithoutBody => {
                let names_session =
                    matches!(expected, Expected::Served { named, .. } if named.contains_key(SESSION));
                case.request.body.is_none() && (case.request.subset.is_some() || names_session)
            }
            Self::DecoderWords => refusals.is_some_and(|(ours, theirs)| {
                let prefix = DECODER_PREFIXES.iter().find(|prefix| ours.message.starts_with(**prefix));
                prefix.is_some_and(|prefix| theirs.message.starts_with(prefix))
                    && Refusal { message: theirs.message.clone(), ..ours.clone() } == *theirs
            }),
        }
    }

    /// The beginning of its row in docs/reference/differences.md.
    pub fn row(self) -> &'static str {
        match self {
            Self::UnclaimedPath | Self::SglangPath => "Paths that v0.10 does not claim",
            Self::NoCandidatesReason | Self::FilteredOutReason => "Reasons of rejections",
            Self::WithoutBody => "Requests without a body",
            Self::DecoderWords => "Bodies that are not JSON",
            Self::RankScores => "`data-parallel-profile-handler`",
        }
    }
}

fn is_unclaimed(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(Refusal { status: 400, message, .. })
        if message.starts_with("no parser registered matching path suffix for: "))
}

impl Expected {
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

/// Whether the EPP rated the same endpoints, and all of them the same.
fn same_scores(expected: &Expected, answer: &Answer) -> bool {
    let (Expected::Served { totals, .. }, Answer::Served { scores, .. }) = (expected, answer) else {
        return true;
    };
    totals.keys().eq(scores.keys())
        && totals.values().zip(scores.values()).all(|(ours, theirs)| (ours - theirs).abs() < SAME_SCORE)
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SglangPath => "SGLang's path",
            Self::UnclaimedPath => "path that no parser claims",
            Self::NoCandidatesReason => "no candidates without a reason",
            Self::FilteredOutReason => "filtered out without a reason",
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
