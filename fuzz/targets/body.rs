//! Request bodies of every API: the input is a path, a line's end, and a body.
//!
//! However little of a prompt is kept, the rest of what is read is the same, and its blocks are the first of
//! all; our own rules refuse nothing that the EPP's take; and renaming a model changes nothing else of a
//! body.
#![no_main]

use endpoint_picker::policy::{Member, with_members};
use endpoint_picker::request::body::{Api, Body, Options, Parser, Parsers};
use endpoint_picker::request::prompt::block_hashes;
use libfuzzer_sys::fuzz_target;

#[path = "../parts/first_line.rs"]
mod first_line;
use first_line::first_line;

const OTHER: &str = "other \"model\"\\\n";

fuzz_target!(|input: &[u8]| {
    let Some((path, body)) = first_line(input) else { return };
    let Ok(text) = core::str::from_utf8(body) else { return };
    let parsers = Parsers::new(&[
        Parser::OpenAi,
        Parser::Anthropic,
        Parser::VllmHttp,
        Parser::SglangHttp,
        Parser::Passthrough,
    ]);
    let Ok(api) = parsers.api(path) else { return };
    let whole = Body::read(text, api, &Options { keep_bytes: usize::MAX, ..Options::default() });
    for keep_bytes in [0, 300] {
        let cut = Body::read(text, api, &Options { keep_bytes, ..Options::default() });
        match (&whole, &cut) {
            (Ok(whole), Ok(cut)) => same_but_cut(whole, cut),
            (Err(whole), Err(cut)) => assert_eq!(whole.to_string(), cut.to_string()),
            (whole, cut) => panic!("{whole:?} is not {cut:?}"),
        }
    }
    let own = Options { keep_bytes: usize::MAX, refuses_as_epp: false, ..Options::default() };
    match (&whole, Body::read(text, api, &own)) {
        (Ok(whole), Ok(own)) => assert_eq!((&whole.model, &whole.model_span), (&own.model, &own.model_span)),
        (Ok(whole), Err(refusal)) => panic!("our own rules refuse {whole:?}: {refusal}"),
        (Err(_), _) => {}
    }
    if let Ok(whole) = whole
        && api.names_model()
        && !api.reads_only_model()
    {
        renamed(&whole, text, api);
    }
});

fn same_but_cut(whole: &Body<'_>, cut: &Body<'_>) {
    // Of equal keys in a part that is not kept not only the last is counted.
    let (all, some) = (whole.prompt.token_count(), cut.prompt.token_count());
    assert!(all == some || cut.prompt.is_cut() && all < some, "{some} of {all}");
    assert_eq!((&whole.model, &whole.model_span), (&cut.model, &cut.model_span));
    let hashes = |body: &Body<'_>| block_hashes(&body.prompt, "m", body.cache_salt.as_deref(), 16, 10_000);
    let (all, some) = (hashes(whole), hashes(cut));
    if whole.prompt.lists().len() < 2 {
        assert!(all.all().starts_with(some.all()), "what is kept gives other blocks");
    }
}

fn renamed(body: &Body<'_>, text: &str, api: Api) {
    let members = vec![Member::model(body.model_span.clone(), OTHER)];
    let other = with_members(text.as_bytes(), members);
    let other = String::from_utf8(other).expect("text in which text is replaced by text");
    let options = Options { keep_bytes: usize::MAX, ..Options::default() };
    let read = Body::read(&other, api, &options).expect("as good as it was");
    assert_eq!(read.model.as_deref(), Some(OTHER));
    assert_eq!((&read.prompt, read.stream, &read.cache_salt), (&body.prompt, body.stream, &body.cache_salt));
}
