//! The table of statistics: what the filter counts, and where people see it.
//!
//! A row is the only place of a statistic's name, kind, labels and meaning; the unit ends the name. The
//! filter makes its metrics from the rows. A count that people see is in the proxies' reports, and in the
//! agent's JSON, terminal, page and metrics, without more code.

/// The kinds of metrics that a proxy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// The last value.
    Gauge,
    /// The distribution of all values.
    Histogram,
}

/// A row of the table.
#[derive(Debug)]
pub struct Statistic {
    /// The name.
    pub name: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The names of the labels, without the pool.
    pub labels: &'static [&'static str],
    /// The meaning.
    pub help: &'static str,
    /// How the agent shows a count that reports have. `None`: only the proxy's own metrics have it.
    pub shown: Option<Shown>,
}

/// A count of each proxy that the agent shows.
#[derive(Debug)]
pub struct Shown {
    /// Its place in the JSON of a proxy.
    pub field: Field,
    /// The label whose values are shown one by one.
    pub by: Option<&'static str>,
    /// The agent's metric, and the value of its label. `None`: a metric of the statistic's own name.
    pub shared: Option<(&'static SharedMetric, &'static str)>,
}

/// The place of a count in the JSON of a proxy.
#[derive(Debug)]
pub enum Field {
    /// A field with the statistic's name: requests, with words for them, their rate, a column and a tile.
    Requests(&'static str, Level),
    /// A field of an object, which is absent if the proxy reports none of its fields: their names.
    Part(&'static str, &'static str),
    /// None, and no metric: the agent computes a share.
    Derived,
}

/// The meaning of requests for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// All is well.
    Good,
    /// Clients may notice it.
    Warning,
    /// A mistake of the installation, which is shown only while there is one.
    Fault(&'static str),
}

/// A metric of the agent that has several statistics.
#[derive(Debug)]
pub struct SharedMetric {
    /// The name.
    pub name: &'static str,
    /// The meaning.
    pub help: &'static str,
    /// The label that tells the statistics apart.
    pub label: &'static str,
    /// The label for values of the statistics' own label; empty for a statistic without one.
    pub by: Option<&'static str>,
}

/// The label with an endpoint's `ip:port`.
pub const ENDPOINT: &str = "endpoint";

/// The label with the model that serves.
pub const TARGET_MODEL: &str = "target_model";

/// The label with the client's model.
const MODEL: &str = "model_name";

/// The label with a plugin's name.
const PLUGIN: &str = "plugin_name";

static REQUESTS: SharedMetric = SharedMetric {
    name: "requests",
    help: "Requests that a proxy decided on, by outcome",
    label: "outcome",
    by: Some("status"),
};

static SHADOW_DECISIONS: SharedMetric = SharedMetric {
    name: "shadow_decisions",
    help: "Requests that a shadow configuration decided too",
    label: "agrees",
    by: None,
};

const fn requests(words: &'static str, level: Level) -> Shown {
    Shown { field: Field::Requests(words, level), by: None, shared: None }
}

const fn part(object: &'static str, name: &'static str) -> Shown {
    Shown { field: Field::Part(object, name), by: None, shared: None }
}

const DERIVED: Shown = Shown { field: Field::Derived, by: None, shared: None };

impl Shown {
    const fn by(self, label: &'static str) -> Self {
        Self { by: Some(label), ..self }
    }

    const fn of(self, metric: &'static SharedMetric, value: &'static str) -> Self {
        Self { shared: Some((metric, value)), ..self }
    }
}

/// The statistics that reports have.
pub fn shown() -> impl Iterator<Item = (&'static Statistic, &'static Shown)> {
    ALL.iter().filter_map(|statistic| Some((*statistic, statistic.shown.as_ref()?)))
}

/// The numbers of requests that the agent shows, with their words and level.
pub fn shown_requests() -> impl Iterator<Item = (&'static Statistic, &'static str, Level)> {
    shown().filter_map(|(statistic, shown)| match shown.field {
        Field::Requests(words, level) => Some((statistic, words, level)),
        Field::Part(..) | Field::Derived => None,
    })
}

macro_rules! statistics {
    (
        counters {
            $($count:ident $count_name:literal: $count_help:literal $(=> $count_shown:expr)?;)+
        }
        others {
            $($other:ident $kind:ident $name:literal [$($label:expr),*]: $help:literal $(=> $shown:expr)?;)+
        }
    ) => {
        /// The counters without labels of a filter that picks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count {
            $(#[doc = $count_help] $count,)+
        }

        impl Count {
            /// All of them, in the order of their values.
            pub const ALL: [Self; [$($count_name),+].len()] = [$(Self::$count),+];

            /// The row.
            pub const fn statistic(self) -> &'static Statistic {
                match self {
                    $(Self::$count => {
                        static ROW: Statistic = statistics!(
                            @row Counter $count_name [] $count_help $($count_shown)?
                        );
                        &ROW
                    })+
                }
            }
        }

        $(
            #[doc = $help]
            pub static $other: Statistic = statistics!(@row $kind $name [$($label),*] $help $($shown)?);
        )+

        /// All rows.
        pub static ALL: [&Statistic; Count::ALL.len() + [$($name),+].len()] =
            [$(Count::$count.statistic(),)+ $(&$other),+];
    };
    (@row $kind:ident $name:literal $labels:tt $help:literal $($shown:expr)?) => {
        Statistic {
            name: $name,
            kind: MetricKind::$kind,
            labels: &$labels,
            help: $help,
            shown: statistics!(@shown $($shown)?),
        }
    };
    (@shown) => { None };
    (@shown $shown:expr) => { Some($shown) };
}

statistics! {
    counters {
        Routed "routed": "Requests that were sent to an endpoint"
            => requests("routed", Level::Good).of(&REQUESTS, "routed");
        RoutedStale "routed_stale": "Routed requests without readings, which were too old";
        ServedElsewhere "served_elsewhere": "Routed requests whose first attempt went elsewhere than picked"
            => requests("served elsewhere", Level::Fault("Envoy does not follow the picks"));
        RejectedHeldBodies "rejected_held_bodies": "Rejected requests whose bodies had no room"
            => requests("without room", Level::Fault("limits.maxHeldBytesInAll is too small"));
        Snapshots "snapshots": "Snapshots that arrived and can be used";
        SnapshotFailures "snapshot_failures": "Polls for a snapshot that failed";
        TopologyChanges "topology_changes": "Changes of the pool's endpoints or policy";
        ShadowAgreed "shadow_agreed": "Requests that a shadow would have treated alike"
            => part("shadow", "agreed").of(&SHADOW_DECISIONS, "true");
        ShadowEqualScore "shadow_equal_score": "Agreements with another pick of the same score";
        ShadowDisagreed "shadow_disagreed": "Requests that a shadow would have treated differently"
            => part("shadow", "disagreed").of(&SHADOW_DECISIONS, "false");
        ShadowRejected "shadow_rejected": "Disagreements in which the shadow rejects";
        ShadowUnknownEndpoint "shadow_unknown_endpoint": "Disagreements on an endpoint that the pool lacks";
        ShadowNotCompared "shadow_not_compared": "Requests without another picker's choice to compare with";
        PromptBlocks "prompt_blocks": "Blocks of the prompts of routed requests" => DERIVED;
        PromptBlocksMatched "prompt_blocks_matched": "Blocks that the endpoint was sent before" => DERIVED;
        SessionBlocks "session_blocks": "Blocks of the prompts of turns of sessions after the first"
            => part("sessions", "blocks");
        SessionBlocksMatched "session_blocks_matched": "Blocks of these that the endpoint was sent before"
            => part("sessions", "blocks_matched");
        EncoderCacheQueries "encoder_cache_queries": "Images, videos and audio of requests";
        EncoderCacheHits "encoder_cache_hits": "Images, videos and audio that the endpoint was sent before";
        SloAdmitted "slo_admitted": "Routed requests with a limit for their latency";
        SloRefused "slo_refused": "Requests that were refused because no endpoint would keep their limits";
        SloTtftKept "slo_ttft_kept": "Responses that kept the limit for the first token";
        SloTtftMissed "slo_ttft_missed": "Responses that missed the limit for the first token";
        SloTpotKept "slo_tpot_kept": "Responses that kept the limit for further tokens";
        SloTpotMissed "slo_tpot_missed": "Responses that missed the limit for further tokens";
        SharingSent "sharing_sent": "Messages of this proxy that the agent took";
        SharingReceived "sharing_received": "Messages of other proxies";
        SharingUnreadable "sharing_unreadable": "Skipped messages: of another version, or malformed";
        SharingFailures "sharing_failures": "Syncs that failed";
        Recorded "recorded": "Requests that were recorded for the agent" => part("record", "recorded");
        RecordDropped "record_dropped": "Recorded requests that the agent did not get"
            => part("record", "dropped");
    }
    others {
        ABSTAINED Counter "abstained" ["reason"]: "Requests that were left to Envoy's load balancing"
            => requests("left to Envoy", Level::Warning).of(&REQUESTS, "abstained");
        REJECTED Counter "rejected" ["status"]: "Requests that the picker responded to itself, by status"
            => requests("rejected", Level::Warning).by("status").of(&REQUESTS, "rejected");
        FALLBACKS Counter "fallbacks" ["reason"]: "Requests that another pool of the list took";
        SESSIONS Counter "sessions" ["source"]: "Sessions that began, by the source of their names"
            => part("sessions", "begun").by("source");
        SESSION_TURNS Counter "session_turns" ["source"]: "Requests that continued a session"
            => part("sessions", "turns").by("source");
        RESPONSE_ERRORS Counter "response_errors" ["side"]: "Responses with 2xx and an error in the body";
        IN_FLIGHT Gauge "in_flight" []: "Requests in flight at the pool's endpoints, of all workers";
        QUEUED Gauge "queued" []: "Requests that wait in the queue, of all workers";
        SNAPSHOT_AGE Gauge "snapshot_age_ms" []: "Time since the newest snapshot arrived";
        SHARING_PROXIES Gauge "sharing_proxies" []: "Other proxies whose changes arrive";
        BUILD_INFO Gauge "build_info" ["version", "form"]: "The filter's version and form";
        DECISION Histogram "decision_us" []: "Time that a decision took";
        FIRST_BYTE Histogram "first_byte_ms" []: "Time from the decision to the first output";
        FIRST_CHUNK_OF_EXPECTED Histogram "first_chunk_of_expected_percent" []:
            "Times to the first output of streams, of what was expected";
        ENCODER_CACHE_HIT_PERCENT Histogram "encoder_cache_hit_percent" []: "Share of hits, of each request";
        PICKS Counter "picks" [ENDPOINT]: "Requests and stages of them, by endpoint";
        ENDPOINT_IN_FLIGHT Gauge "endpoint_in_flight" [ENDPOINT]: "Requests in flight at it";
        ENDPOINT_IN_FLIGHT_TOKENS Gauge "endpoint_in_flight_tokens" [ENDPOINT]: "Tokens in flight";
        MODEL_REQUESTS Counter "model_requests" [MODEL, TARGET_MODEL]: "Routed requests by model";
        REWRITES Counter "rewrites" ["model_rewrite_name", TARGET_MODEL]:
            "Requests whose model a rewrite rule named, by the rule's object";
        INPUT_TOKENS Histogram "input_tokens" [MODEL, TARGET_MODEL]: "Tokens of a request";
        INPUT_TOKENS_TOTAL Counter "input_tokens_total" [MODEL, TARGET_MODEL]: "Sum of `input_tokens`";
        OUTPUT_TOKENS Histogram "output_tokens" [MODEL, TARGET_MODEL]: "Tokens of a response";
        OUTPUT_TOKENS_TOTAL Counter "output_tokens_total" [MODEL, TARGET_MODEL]: "Sum of `output_tokens`";
        CACHED_TOKENS Histogram "cached_tokens" [MODEL, TARGET_MODEL]: "Cached tokens of a request";
        CACHED_TOKENS_TOTAL Counter "cached_tokens_total" [MODEL, TARGET_MODEL]: "Sum of `cached_tokens`";
        TIME_PER_TOKEN Histogram "ntpot_us" [MODEL, TARGET_MODEL]: "Time for each token of a response";
        TIME_PER_FURTHER_TOKEN Histogram "streaming_tpot_us" [MODEL, TARGET_MODEL]:
            "Time for each token of a streamed response after the first";
        PREDICTION_ERRORS Histogram "model_index_error_tokens" [MODEL, TARGET_MODEL, "source"]:
            "Errors of the predicted cached tokens, by the source of the prediction";
        WRONG_PREDICTIONS Counter "model_index_wrong_responses" [MODEL, TARGET_MODEL, "source"]:
            "Responses whose cached tokens were predicted wrongly";
        SERVED_MODEL_DECISIONS Counter "served_model_filter_decisions" [PLUGIN, "outcome"]:
            "Runs of filters by lists of models";
        SERVED_MODEL_CANDIDATES Counter "served_model_filter_candidates" [PLUGIN]: "Candidates of such runs";
        SERVED_MODEL_UNLISTED Counter "served_model_filter_unlisted_candidates" [PLUGIN]:
            "Candidates of such runs that have no list";
        ATTRIBUTE_REPORTS Counter "attribute_reports" [PLUGIN, "outcome"]: "Reports on responses";
        BODY_BASED_ROUTING Counter "body_based_routing" ["outcome"]: "Requests whose body was read first";
        RESUMABLE_STREAMS Counter "resumable_streams" []: "Streams that can be resumed"
            => part("resumptions", "resumable");
        RESUMED_STREAMS Counter "resumed_streams" []: "How often a stream was continued at another server"
            => part("resumptions", "resumed");
        CUT_STREAMS Counter "cut_streams" ["reason"]: "Streams of this filter that the client got cut"
            => part("resumptions", "cut").by("reason");
        UNRESUMABLE_STREAMS Counter "unresumable_streams" ["reason"]:
            "Streamed requests that passed this filter, by reason"
            => part("resumptions", "unresumable").by("reason");
        PANICS Counter "panics" []: "Caught panics of the native module";
    }
}
