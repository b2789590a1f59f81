//! Output of a model in a stream of events.

use serde_json::Value;

/// Output of a stream of any API, without its division into events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOutput {
    /// Texts, reasoning, and names and arguments of tool calls, in their order.
    pub text: String,
    /// The reasons of the end, events that end a response, and data that is not JSON, such as `[DONE]`.
    pub ends: Vec<String>,
    /// The usage of each event that has one.
    pub usage: Vec<String>,
}

impl StreamOutput {
    /// Reads the output of these events.
    pub fn of(stream: &str) -> Self {
        let mut output = Self { text: String::new(), ends: Vec::new(), usage: Vec::new() };
        for data in stream.split("\n\n").filter_map(|event| Some(event.split_once("data: ")?.1)) {
            match data.parse() {
                Ok(event) => output.add(&event),
                Err(_) => output.ends.push(data.to_owned()),
            }
        }
        output
    }

    fn add(&mut self, event: &Value) {
        let choice = &event["choices"][0];
        let delta = if event["choices"].is_array() { &choice["delta"] } else { &event["delta"] };
        let call = &delta["tool_calls"][0]["function"];
        let of_chat = [&delta["reasoning"], &delta["content"], &call["name"], &call["arguments"]];
        let of_block = [&delta["text"], &delta["thinking"], &delta["partial_json"]];
        let of_item = [delta, &event["content_block"]["name"], &event["item"]["name"]];
        let texts = of_chat.into_iter().chain(of_block).chain(of_item);
        self.text.extend(texts.filter_map(Value::as_str));
        let spelled = |values: [&Value; 2]| {
            let present: Vec<_> = values.into_iter().filter(|value| !value.is_null()).collect();
            present.into_iter().map(Value::to_string).collect::<Vec<_>>()
        };
        self.ends.extend(spelled([&choice["finish_reason"], &event["delta"]["stop_reason"]]));
        let ends = ["response.completed", "response.incomplete", "response.failed"];
        self.ends.extend(event["type"].as_str().filter(|name| ends.contains(name)).map(str::to_owned));
        self.usage.extend(spelled([&event["usage"], &event["response"]["usage"]]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_division_into_events_does_not_matter() {
        let whole = StreamOutput::of(
            "data: {\"choices\":[{\"delta\":{\"reasoning\":\"a b\",\"content\":\"c\"},\"finish_reason\":\"stop\"}],\
             \"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n",
        );
        let divided = StreamOutput::of(
            "data: {\"choices\":[{\"delta\":{\"reasoning\":\"a \"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{\"reasoning\":\"b\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"c\"},\"finish_reason\":\"stop\"}]}\n\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n",
        );
        assert_eq!(whole, divided);
        assert_eq!((&*whole.text, whole.ends.len(), whole.usage.len()), ("a bc", 2, 1));
    }

    #[test]
    fn texts_of_all_apis_count() {
        let stream = "event: x\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n\
                      data: {\"type\":\"content_block_start\",\"content_block\":{\"name\":\"b\"}}\n\n\
                      data: {\"delta\":{\"partial_json\":\"c\"}}\n\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
                      data: {\"type\":\"response.completed\",\"response\":{\"usage\":{}}}\n\n";
        let StreamOutput { text, ends, usage } = StreamOutput::of(stream);
        let expected = ["\"end_turn\"", "response.completed"].map(str::to_owned);
        assert_eq!((&*text, &*ends, usage.len()), ("abc", &expected[..], 1));
    }
}
