//! The EPP's flags, and what takes the place of each.

use core::fmt;

use super::Difference;

/// What takes the place of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counterpart {
    /// The agent has the flag.
    Same,
    /// The agent has a flag of another name.
    OtherName,
    /// A manifest, the filter's configuration or Envoy has it.
    Elsewhere,
    /// There is nothing for it to do.
    NotNeeded,
    /// There is nothing like it.
    Missing,
}

/// A flag of the EPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EppFlag {
    /// The name without dashes.
    pub name: &'static str,
    /// What takes its place.
    pub counterpart: Counterpart,
    /// Where that is, or why there is none.
    pub text: &'static str,
}

impl fmt::Display for Counterpart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "same flag",
            Self::OtherName => "other name",
            Self::Elsewhere => "elsewhere",
            Self::NotNeeded => "not needed",
            Self::Missing => "not there",
        })
    }
}

const fn flag(name: &'static str, counterpart: Counterpart, text: &'static str) -> EppFlag {
    EppFlag { name, counterpart, text }
}

const NO_GRPC: &str = "the filter decides in Envoy's process, so there is no gRPC server";
const METRIC_NAMES: &str =
    "`engineConfigs` of the plugin `core-metrics-extractor`; the EPP refuses the flag too";
const ONE_LOG_FORMAT: &str = "the agent logs lines of text";

/// All flags of the EPP v0.10.0, and those that it only refuses.
pub const EPP_FLAGS: &[EppFlag] = &[
    flag("allow-experimental-plugins", Counterpart::Same, "`--allow-experimental-plugins`"),
    flag("cert-path", Counterpart::NotNeeded, NO_GRPC),
    flag(
        "config-file",
        Counterpart::OtherName,
        "`--manifests`, or on Kubernetes `--picker-config-map`, with the same `EndpointPickerConfig`",
    ),
    flag(
        "config-text",
        Counterpart::OtherName,
        "`--manifests`, or on Kubernetes `--picker-config-map`, with the same text as a document",
    ),
    flag(
        "disable-endpoint-subset-filter",
        Counterpart::Missing,
        "a subset hint is always obeyed; take the filter away that sets it",
    ),
    flag("drain-timeout", Counterpart::NotNeeded, "requests do not pass the agent, and Envoy drains itself"),
    flag("emit-endpoint-scores", Counterpart::Same, "`--emit-endpoint-scores`"),
    flag(
        "enable-cert-reload",
        Counterpart::NotNeeded,
        "files of certificates are read again when they change",
    ),
    flag("enable-grpc-stream-metrics", Counterpart::NotNeeded, NO_GRPC),
    flag("enable-pprof", Counterpart::Missing, "`perf` can profile the agent and Envoy"),
    flag(
        "endpoint-selector",
        Counterpart::Elsewhere,
        "an `InferencePool` with these labels as `spec.selector.matchLabels`; selectors of sets are not there",
    ),
    flag("endpoint-target-ports", Counterpart::Elsewhere, "`spec.targetPorts` of the `InferencePool`"),
    flag(
        "grpc-health-port",
        Counterpart::NotNeeded,
        "probe `/healthz` and `/readyz` at the agent's `--listen`",
    ),
    flag("grpc-max-recv-msg-size", Counterpart::Elsewhere, "`limits.maxHeldBytes` of the filter"),
    flag("grpc-max-send-msg-size", Counterpart::NotNeeded, NO_GRPC),
    flag("grpc-port", Counterpart::NotNeeded, NO_GRPC),
    flag("ha-enable-leader-election", Counterpart::NotNeeded, "all replicas of the agent serve, none leads"),
    flag("health-checking", Counterpart::NotNeeded, NO_GRPC),
    flag(
        "metrics-cert-dir",
        Counterpart::OtherName,
        "`--tls-cert` and `--tls-key`, for the agent's whole API",
    ),
    flag("metrics-client-ca-file", Counterpart::OtherName, "`--tls-client-ca`, for the agent's whole API"),
    flag(
        "metrics-endpoint-auth",
        Counterpart::OtherName,
        "`--bearer-token-file` with tokens of your own; tokens of Kubernetes are not reviewed",
    ),
    flag("metrics-port", Counterpart::OtherName, "`--listen`, with port 9095 by default"),
    flag("metrics-staleness-threshold", Counterpart::Missing, "2 s, the EPP's default, for the same gauges"),
    flag("pool-group", Counterpart::NotNeeded, "pools of both API groups are read"),
    flag("pool-name", Counterpart::OtherName, "`--pool`; without it the agent serves all its pools"),
    flag("pool-namespace", Counterpart::OtherName, "`--kubernetes-namespace`"),
    flag(
        "refresh-metrics-interval",
        Counterpart::OtherName,
        "`--interval`, with the same default and minimum",
    ),
    flag(
        "refresh-prometheus-metrics-interval",
        Counterpart::NotNeeded,
        "gauges are computed whenever Prometheus scrapes them",
    ),
    flag("secure-serving", Counterpart::NotNeeded, NO_GRPC),
    flag(
        "tls-cipher-suites",
        Counterpart::Missing,
        "the suites of TLS 1.3, and of TLS 1.2 with forward secrecy",
    ),
    flag("tls-min-version", Counterpart::Missing, "TLS 1.2"),
    flag("tracing", Counterpart::Elsewhere, "Envoy's own tracing, with the pick as a tag"),
    flag("v", Counterpart::OtherName, "`--log info`, `--log debug`"),
    flag("zap-devel", Counterpart::Missing, ONE_LOG_FORMAT),
    flag("zap-encoder", Counterpart::Missing, ONE_LOG_FORMAT),
    flag("zap-log-level", Counterpart::OtherName, "`--log info`, `--log debug`"),
    flag("zap-stacktrace-level", Counterpart::Missing, ONE_LOG_FORMAT),
    flag("zap-time-encoding", Counterpart::Missing, ONE_LOG_FORMAT),
    flag("total-queued-requests-metric", Counterpart::Elsewhere, METRIC_NAMES),
    flag("total-running-requests-metric", Counterpart::Elsewhere, METRIC_NAMES),
    flag("kv-cache-usage-percentage-metric", Counterpart::Elsewhere, METRIC_NAMES),
    flag("lora-info-metric", Counterpart::Elsewhere, METRIC_NAMES),
    flag("cache-info-metric", Counterpart::Elsewhere, METRIC_NAMES),
];

/// The differences that the arguments of an EPP's process make: all flags that the agent does not have under the same name.
pub fn of_flags<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<Difference> {
    arguments.into_iter().filter_map(difference).collect()
}

fn difference(argument: &str) -> Option<Difference> {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let subject = format!("flag --{name}");
    let Some(flag) = EPP_FLAGS.iter().find(|flag| flag.name == name) else {
        return Some(Difference { subject, text: "not a flag of the EPP v0.10.0" });
    };
    (flag.counterpart != Counterpart::Same).then_some(Difference { subject, text: flag.text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_in_both_spellings_and_values_are_not_flags() {
        let arguments =
            ["--pool-name", "default", "-v=3", "--emit-endpoint-scores", "--grpc-port=9002", "--x"];
        let differences: Vec<String> = of_flags(arguments).iter().map(ToString::to_string).collect();
        assert_eq!(
            differences,
            [
                "flag --pool-name: `--pool`; without it the agent serves all its pools",
                "flag --v: `--log info`, `--log debug`",
                "flag --grpc-port: the filter decides in Envoy's process, so there is no gRPC server",
                "flag --x: not a flag of the EPP v0.10.0",
            ]
        );
    }
}
