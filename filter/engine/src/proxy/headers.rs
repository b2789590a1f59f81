//! Headers that the picker sets, and headers that it removes from requests and responses.

/// The destination: one `ip:port`, or several in the order in which they are tried, separated by commas.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";

/// The score of each rated endpoint, for a filter that moves it into metadata.
pub const SCORES: &str = "x-gateway-destination-endpoint-scores";

/// The explanation of the decision, endpoint by endpoint.
pub const EXPLANATION: &str = "x-endpoint-picker-explanation";

/// The header that limits a request to the list of destinations: with the value [`NO_FALLBACK`] the proxy
/// responds with 503 when every endpoint of the list has failed; without it, the proxy balances over the
/// whole pool.
pub const FALLBACK: &str = "x-endpoint-picker-fallback";

/// See [`FALLBACK`].
pub const NO_FALLBACK: &str = "none";

/// The reason why a request was dropped.
pub const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// Time that a request waited in the queue, in milliseconds, for clients that ask for explanations.
pub const QUEUE_WAIT: &str = "x-llm-d-queue-wait-ms";

/// Seconds after which a rejected client may retry.
pub(crate) const RETRY_AFTER: &str = "retry-after";

/// The endpoint that computes the prompt.
pub(crate) const PREFILLER: &str = "x-prefiller-host-port";

/// The endpoints that encode images, video and audio.
pub(crate) const ENCODERS: &str = "x-encoder-hosts-ports";

/// The rank of the destination's server that responds.
pub(crate) const RANK: &str = "x-data-parallel-host-port";

/// The endpoint that served; the proxy sets it.
pub(crate) const SERVED: &str = "x-gateway-destination-endpoint-served";

/// Headers that steer the request after this filter. A client that could set them could choose its own
/// server; with an original-destination cluster it could reach any address.
pub(crate) const CONTROL: [&str; 11] = [
    DESTINATION,
    FALLBACK,
    SCORES,
    EXPLANATION,
    "x-gateway-destination-endpoint-subset",
    SERVED,
    DROPPED_REASON,
    PREFILLER,
    ENCODERS,
    RANK,
    "x-kv-cache-source-host-port",
];

/// Headers of responses that servers must not set.
pub(crate) const OF_ANSWERS: [&str; 6] =
    [DESTINATION, SCORES, EXPLANATION, SERVED, DROPPED_REASON, QUEUE_WAIT];

/// Maximum length of a header value that later filters can use, in bytes: Envoy's `header_to_metadata`
/// ignores values of 8 KiB and more.
pub const LONGEST_VALUE: usize = 8191;

/// The value of [`DESTINATION`] for these addresses, which the proxy tries in their order. A list that is
/// longer than [`LONGEST_VALUE`] is cut after an address.
pub(crate) fn destination_list(addresses: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut list = String::new();
    for address in addresses {
        let address = address.as_ref();
        if list.len() + 1 + address.len() > LONGEST_VALUE {
            break;
        }
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(address);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_listed_in_order() {
        let addresses = ["10.0.0.1:8000", "10.0.0.2:8000"];
        assert_eq!(destination_list(addresses.iter()), "10.0.0.1:8000,10.0.0.2:8000");
    }

    #[test]
    fn a_list_that_is_too_long_is_cut_behind_an_address() {
        let addresses: Vec<String> =
            (0..1000).map(|n| format!("10.0.{}.{}:8000", n / 250, n % 250)).collect();
        let list = destination_list(addresses.iter());
        assert!((LONGEST_VALUE - 16..=LONGEST_VALUE).contains(&list.len()), "{}", list.len());
        let listed: Vec<&str> = list.split(',').collect();
        assert_eq!(listed, addresses[..listed.len()]);
    }
}
