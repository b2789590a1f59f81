//! The types of a hub that learn latencies from responses, and the type that estimates responses.

use metrics_agent_catalogue::{Options, Plan};

use crate::reading::{config, file, options};

fn experimental(text: &str) -> Result<Plan, String> {
    let options = Options { allow_experimental_plugins: true, ..options() };
    Plan::read(&[file("m.yaml", text)], &options).map_err(|problems| problems.to_string())
}

/// Examples of `latency-observer-producer-hub`, `latency-observation-scorer-hub` and `outlen-bucket`.
#[test]
fn observed_latencies_are_predicted_ones_with_a_warning_of_how_they_differ() {
    let observed = |observer: &str, scorer: &str, extractors: &str| {
        config(&format!(
            "plugins:
- {{type: outlen-bucket}}
- {{type: latency-observer-producer-hub, parameters: {{{observer}}}}}
- {{type: latency-observation-scorer-hub, parameters: {{{scorer}}}}}
dataLayer: {{sources: [{{pluginRef: latency-observer-producer-hub{extractors}}}]}}"
        ))
    };
    let text = observed("maxRequests: 50, minRequests: 3, bucketHistorySize: 4", "minInflightGap: 1", "");
    let plan = experimental(&text).unwrap();
    let warned: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
    for (index, text) in [
        (0, "\"outlen-bucket\" has no effect here: the length of a response is not estimated"),
        (1, "\"latency-observer-producer-hub\" is accepted: it is predicted-latency-producer"),
        (2, "\"latency-observation-scorer-hub\" is accepted: it is latency-scorer"),
    ] {
        let warning = format!("m.yaml: document 1: plugins[{index}].type: {text}");
        assert!(warned.iter().any(|it| it.starts_with(&warning)), "{warning}: {warned:?}");
    }
    let plugins = &plan.pools[0].policy.picker_config.as_ref().unwrap().plugins;
    let types: Vec<[&str; 2]> =
        plugins.iter().map(|plugin| [plugin.name.as_str(), plugin.r#type.as_str()]).collect();
    assert_eq!(
        types,
        [
            ["latency-observer-producer-hub", "predicted-latency-producer"],
            ["latency-observation-scorer-hub", "latency-scorer"]
        ]
    );
    for (observer, scorer, extractors, expected) in [
        ("maxRequests: 6000", "", "", "maxRequests is 6000; allowed is at most windowSize, 5000"),
        ("lowPercentile: 60", "", "", "lowPercentile is 60 and typicalPercentile 50; allowed are"),
        ("bucketHistorySize: 1", "", "", "bucketHistorySize is 1; allowed is 2 and above"),
        ("bucketDuration: 0s", "", "", "plugins[1].parameters.bucketDuration: is 0; allowed is above 0"),
        ("", "explorationRate: 2", "", "explorationRate is 2; allowed is 0 to 1"),
        ("", "minInflightGap: 0", "", "minInflightGap is 0; allowed is above 0"),
        ("", "roundTTFTStep: soon", "", "parameters.roundTTFTStep: \"soon\" is not a duration"),
        ("", "ttftPercentilesProducerName: x", "", "ttftPercentilesProducerName: no plugin is named \"x\""),
        ("highPercentile: 90", "", "", "unknown field `highPercentile`"),
        ("", "", ", extractors: [{pluginRef: outlen-bucket}]", "sources[0].extractors: is not allowed; a "),
    ] {
        let problems = experimental(&observed(observer, scorer, extractors)).unwrap_err();
        assert!(problems.contains(expected), "{expected}: {problems}");
    }
}
