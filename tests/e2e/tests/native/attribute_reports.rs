//! Numbers of responses in Envoy's dynamic metadata.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use serde_json::{Value, json};

const CONFIG: &str = r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: queue-scorer
  - type: request-attribute-reporter
    parameters:
      attributes:
        - key: { name: x-gateway-inference-request-cost }
          expression: usage.prompt_tokens + 4.0 * usage.completion_tokens
          condition: usage.completion_tokens > 0
";

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_has_the_number_of_a_response() {
    const COST: &str = "%DYNAMIC_METADATA(envoy.lb:x-gateway-inference-request-cost)%";
    const FORMAT: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/access_log/0/typed_config/log_format/json_format/explanation";
    let stack = Stack::builder().manifests(CONFIG).value_at(FORMAT, COST).start().await;
    for stream in [false, true] {
        let path = format!("{CHAT}?stream={stream}");
        let mut chat = fresh_chat();
        chat["stream"] = stream.into();
        chat["stream_options"] = json!({"include_usage": true});
        let response = client::http1().post(stack.url(&path)).json(&chat).send().await.unwrap();
        let text = response.error_for_status().unwrap().text().await.unwrap();
        // The usage is in the response, or in one of its events.
        let parts = text.lines().map(|line| line.trim_start_matches("data:"));
        let mut usages =
            parts.filter_map(|part| serde_json::from_str::<Value>(part).ok()?.get("usage").cloned());
        let usage = usages.rfind(Value::is_object).unwrap_or_else(|| panic!("{text}"));
        let [prompt, completion] =
            ["prompt_tokens", "completion_tokens"].map(|field| usage[field].as_f64().unwrap());
        let entry = stack.logged(&path).await;
        assert_eq!(entry["explanation"].as_f64(), Some(prompt + 4.0 * completion), "{entry} {usage}");
    }
}
