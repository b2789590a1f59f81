//! Bodies that break a rule of their API, with the message, and bodies that break none.

use endpoint_picker::request::body::Api;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{APIS, read, refusal};

const CHAT: &str = "invalid chat completions request: must have valid messages field";
const COMPLETIONS: &str = "invalid completions request: must have prompt field";
const EMBEDDINGS: &str = "invalid embeddings request: must have input field";
const RESPONSES: &str = "invalid responses request: must have input field";
const CONVERSATIONS: &str = "invalid conversations request: must have items field";
const IMAGES: &str = "invalid images generations request: must have prompt field";

fn all_refused(api: Api, message: &str, bodies: &[&str]) {
    for body in bodies {
        assert_eq!(refusal(api, body), message, "{body}");
    }
}

#[test]
fn a_chat_without_valid_messages_is_refused() {
    all_refused(
        Api::Chat,
        CHAT,
        &[
            r"{}",
            r"null",
            r#"{"messages":[]}"#,
            r#"{"messages":null}"#,
            r#"{"messages":"hi"}"#,
            r#"{"messages":{"role":"user"}}"#,
            r#"{"messages":["hi"]}"#,
            r#"{"messages":[{"role":1}]}"#,
            r#"{"messages":[{"content":1}]}"#,
            r#"{"messages":[{"content":{"type":"text"}}]}"#,
            r#"{"messages":[{"content":["hi"]}]}"#,
            r#"{"messages":[{"content":[{"type":7}]}]}"#,
            r#"{"messages":[{"content":[{"type":"text","text":[]}]}]}"#,
            r#"{"messages":[{"content":[{"type":"image_url","image_url":"http://x"}]}]}"#,
            r#"{"messages":[{"content":[{"image_url":{"url":1}}]}]}"#,
            r#"{"messages":[{"tool_calls":{}}]}"#,
            r#"{"messages":[{}],"tools":{}}"#,
            r#"{"messages":[{}],"documents":1}"#,
            r#"{"messages":[{}],"chat_template":1}"#,
            r#"{"messages":[{}],"chat_template_kwargs":[]}"#,
            r#"{"messages":[{}],"add_generation_prompt":"true"}"#,
            r#"{"messages":[{}],"continue_final_message":1}"#,
            r#"{"messages":[{}],"return_assistant_tokens_mask":0}"#,
            r#"{"messages":[{}],"cache_salt":7}"#,
            r#"{"prompt":"hi"}"#,
        ],
    );
}

#[test]
fn completions_without_a_prompt_are_refused() {
    all_refused(
        Api::Completions,
        COMPLETIONS,
        &[
            r"{}",
            r#"{"prompt":""}"#,
            r#"{"prompt":null}"#,
            r#"{"prompt":[]}"#,
            r#"{"prompt":1}"#,
            r#"{"prompt":true}"#,
            r#"{"prompt":{"a":1}}"#,
            r#"{"prompt":["a",1]}"#,
            r#"{"prompt":[1,"a"]}"#,
            r#"{"prompt":[1,null]}"#,
            r#"{"prompt":[null]}"#,
            r#"{"prompt":[[1,2],3]}"#,
            r#"{"prompt":[["a"]]}"#,
            r#"{"prompt":[1.5]}"#,
            r#"{"prompt":[-1]}"#,
            r#"{"prompt":[4294967296]}"#,
            r#"{"prompt":["a"],"cache_salt":[]}"#,
            r#"{"messages":[{}]}"#,
        ],
    );
}

#[test]
fn embeddings_without_an_input_are_refused() {
    all_refused(
        Api::Embeddings,
        EMBEDDINGS,
        &[r"{}", r#"{"input":""}"#, r#"{"input":[]}"#, r#"{"input":[[1],1]}"#, r#"{"input":{}}"#],
    );
}

#[test]
fn responses_without_an_input_are_refused() {
    all_refused(Api::Responses, RESPONSES, &[r"{}", r#"{"input":null}"#, r#"{"input":"a","cache_salt":1}"#]);
}

#[test]
fn conversations_without_items_are_refused() {
    all_refused(
        Api::Conversations,
        CONVERSATIONS,
        &[
            r"{}",
            r#"{"items":[]}"#,
            r#"{"items":{}}"#,
            r#"{"items":["a"]}"#,
            r#"{"items":[{"type":1}]}"#,
            r#"{"items":[{"role":[]}]}"#,
            r#"{"items":[{}],"metadata":[]}"#,
        ],
    );
}

#[test]
fn image_generations_without_a_prompt_are_refused() {
    all_refused(
        Api::Images,
        IMAGES,
        &[
            r"{}",
            r#"{"prompt":""}"#,
            r#"{"prompt":["a"]}"#,
            r#"{"prompt":"a","n":1.5}"#,
            r#"{"prompt":"a","n":"1"}"#,
            r#"{"prompt":"a","size":1}"#,
        ],
    );
}

#[test]
fn messages_without_a_message_are_refused() {
    all_refused(
        Api::Messages,
        "invalid messages request: must have at least one message",
        &[r"{}", r#"{"messages":[]}"#, r#"{"messages":null}"#],
    );
}

#[test]
fn generation_without_token_ids_is_refused() {
    all_refused(
        Api::Generate,
        "invalid generate request: must have non-empty token_ids field",
        &[r"{}", r#"{"token_ids":[]}"#, r#"{"token_ids":null}"#],
    );
}

#[test]
fn sglang_generation_without_input_ids_is_refused() {
    all_refused(
        Api::SglangGenerate,
        "invalid generate request: input_ids must be provided",
        &[r"{}", r#"{"input_ids":null}"#, r#"{"text":"hi"}"#],
    );
}

#[test]
fn the_other_parsers_name_the_field_at_fault() {
    for (api, body, message) in [
        (Api::Messages, r#"{"messages":"hi"}"#, "error parsing messages request: messages must be an array"),
        (
            Api::Messages,
            r#"{"messages":[{"content":5}]}"#,
            "error parsing messages request: content must be a string or an array of content blocks",
        ),
        (
            Api::Messages,
            r#"{"messages":[{}],"cache_salt":5}"#,
            "error parsing messages request: cache_salt must be a string",
        ),
        (
            Api::Generate,
            r#"{"token_ids":[1,2,1.5]}"#,
            "invalid generate request: token_ids[2]: invalid value 1.5",
        ),
        (Api::Generate, r#"{"token_ids":[-1]}"#, "invalid generate request: token_ids[0]: invalid value -1"),
        (
            Api::Generate,
            r#"{"token_ids":[0,4294967296]}"#,
            "invalid generate request: token_ids[1]: invalid value 4294967296",
        ),
        (
            Api::Generate,
            r#"{"token_ids":["a"]}"#,
            "invalid generate request: token_ids must be an array of numbers",
        ),
        (Api::SglangGenerate, r#"{"input_ids":[]}"#, "invalid generate request: input_ids cannot be empty"),
        (
            Api::SglangGenerate,
            r#"{"input_ids":[1.0]}"#,
            "invalid generate request: input_ids must be an array of uint32 integers",
        ),
        (
            Api::SglangGenerate,
            r#"{"input_ids":[[1]]}"#,
            "invalid generate request: input_ids must be an array of uint32 integers",
        ),
        (
            Api::SglangGenerate,
            r#"{"input_ids":[1],"extra_key":["a"]}"#,
            "invalid generate request: extra_key must be a string",
        ),
        (
            Api::SglangGenerate,
            r#"{"input_ids":[1],"stream":"yes"}"#,
            "invalid generate request: stream must be true or false",
        ),
    ] {
        assert_eq!(refusal(api, body), message, "{body}");
    }
}

#[test]
fn a_body_without_the_fields_of_its_api_is_refused() {
    for &api in Api::ALL.iter().filter(|api| !api.reads_first_message()) {
        let sample = APIS.iter().find(|(sampled, ..)| *sampled == api);
        match sample {
            Some((_, _, required)) => {
                assert!(read(api, &format!("{{{required}}}")).is_ok(), "{api:?}");
                assert!(read(api, "{}").is_err(), "{api:?}");
            }
            None => assert!(read(api, "{}").is_ok(), "{api:?} has no row in the table of APIs"),
        }
    }
}

#[test]
fn bodies_that_only_look_wrong_are_accepted() {
    for (api, body) in [
        (Api::Chat, r#"{"messages":[{}]}"#),
        (Api::Chat, r#"{"messages":[null]}"#),
        (Api::Chat, r#"{"messages":[{"role":null,"content":null,"tool_calls":null}],"tools":null}"#),
        (Api::Chat, r#"{"messages":[{"content":[]}],"tools":[],"cache_salt":null,"chat_template":null}"#),
        (Api::Chat, r#"{"messages":[{"content":[null,{},{"type":"unheard_of","x":[1]}]}]}"#),
        (Api::Chat, r#"{"messages":[{"content":[{"type":"image_url","image_url":null}]}]}"#),
        (Api::Chat, r#"{"messages":[{}],"model":5,"stream":"true","max_tokens":"7"}"#),
        (Api::Chat, r#"{"messages":[{}],"max_tokens":-1,"unknown":{"a":[1,2,{"b":null}]}}"#),
        (Api::Completions, r#"{"prompt":"a","tools":5,"chat_template":5,"metadata":5}"#),
        (Api::Completions, r#"{"prompt":[1.0,2e2,-0]}"#),
        (Api::Images, r#"{"prompt":"a","cache_salt":5,"n":null}"#),
        (Api::Responses, r#"{"input":""}"#),
        (Api::Conversations, r#"{"items":[null]}"#),
    ] {
        assert!(read(api, body).is_ok(), "{body}: {:?}", read(api, body));
    }
}
