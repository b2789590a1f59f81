//! Memory that hostile templates take, before they run out of fuel.

use endpoint_picker_template::{ChatApi, ChatTemplate, Unrendered};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Several times the data for which there is fuel, because a text grows by doubling and parts of a text take
/// more than its bytes.
const MAX_BYTES: usize = 128 << 20;

#[test]
fn a_call_takes_no_more_memory_than_there_is_fuel_for() {
    let text = "x".repeat(1 << 20);
    let body = format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}]}}"#);
    let mut wrong = Vec::new();
    for call in [
        "'{:>999999999}'.format(1)",
        "'{:.999999999f}'.format(1.5)",
        "('{:>1000}' * 100000).format(*range(100000))",
        "('{0}' * 1000000).format(text)",
        "('{0.content}' * 1000000).format(messages[0])",
        "'%999999999d' | format(1)",
        "'%.70000f' | format(1)",
        "('%(a)s' * 1000000) | format(a=text)",
        "''.join([text] * 1000)",
        "([text] * 1000) | join",
        "(messages * 1000) | join('', attribute='content')",
        "(messages * 1000) | join(attribute='content')",
        "(text * 10).split('')",
        "('a\n' * 6000000).splitlines()",
        "text.replace('', text)",
        "text | replace('', text)",
        "text | indent(999999999, true)",
        "('\n' * 1000000) | indent(1000, true, true)",
        "'x' * 99999999",
        "((1,) * 99999999)",
        "([1] * 99999999) | list",
        "'{}'.format(*([1] * 99999999))",
        "range(100000) | batch(999999999, 1) | list",
        "range(1) | slice(99999999) | list",
        "range(999999999) | list",
        "[text] | tojson(indent=999999999)",
        "9 ** 99999999",
        "1.5 | round(999999999)",
        "strftime_now('%999999999Y')",
        "text.ljust(999999999)",
        "text.rjust(999999999)",
        "text.center(999999999)",
        "'1'.zfill(999999999)",
        "'1'.expandtabs(999999999)",
        "'%999999999d' % 1",
    ] {
        let template = format!("{{% set text = messages[0].content %}}{{{{ ({call}) | length }}}}");
        let template = ChatTemplate::compile(&template, "", "").unwrap();
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let rendered = template.render(ChatApi::Completions, body.as_bytes(), 0, 1 << 20);
        let taken = MEMORY.peak_usage() - before;
        let is_refused = matches!(rendered, Err(Unrendered::Template(_)));
        if taken > MAX_BYTES || !is_refused {
            wrong.push(format!("{call}: {taken} bytes, {rendered:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
