//! Records of all formats, and files that are none.

use super::*;

fn read(text: &str) -> Result<Record, RecordError> {
    Record::read(text.as_bytes())
}

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n\
    2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:51.2225670,879,55\n";
const MOONCAKE: &str = "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [46, 47]}\n\
    {\"timestamp\": 3000, \"input_length\": 1300, \"output_length\": 7, \"hash_ids\": [46, 47, 48]}\n";

#[test]
fn azures_traces_are_lengths_and_times() {
    let record = read(AZURE).unwrap();
    let lengths: Vec<_> = record.requests.iter().map(|request| (request.input, request.output)).collect();
    assert_eq!(lengths, [(374, 44), (396, 109), (879, 55)]);
    let gap = record.requests[1].at.as_secs_f64();
    assert!((gap - 4.314_579).abs() < 1e-5, "{gap}");
}

#[test]
fn mooncakes_blocks_have_the_least_size_with_which_they_suffice() {
    let record = read(MOONCAKE).unwrap();
    assert_eq!(record.block_tokens, 512);
    assert_eq!(record.blocks(&record.requests[1]), [46, 47, 48]);
    assert_eq!(record.requests[1].at, Duration::from_secs(3));
}

#[test]
fn a_session_of_an_agent_and_each_sub_agent_is_a_session() {
    let line = |id: &str, blocks: &str| {
        format!(
            "{{\"id\": \"{id}\", \"models\": [\"m\"], \"block_size\": 64, \"hash_id_scope\": \"local\", \"requests\": [\
             {{\"type\": \"s\", \"t\": 0.5, \"in\": 128, \"out\": 7, \"hash_ids\": [1, 2], \"api_time\": 2.5, \"ttft\": 0.1}},\
             {{\"type\": \"subagent\", \"t\": 3, \"agent_id\": \"a\", \"status\": \"completed\", \"requests\": [\
             {{\"type\": \"n\", \"t\": 3, \"in\": 64, \"out\": 1, \"hash_ids\": [9], \"api_time\": 1}}]}},\
             {{\"type\": \"s\", \"t\": 5, \"in\": 192, \"out\": 7, \"hash_ids\": {blocks}, \"api_time\": 1}}]}}\n"
        )
    };
    let record = read(&(line("x", "[1, 2, 3]") + &line("y", "[1, 2, 3]"))).unwrap();
    let sessions: Vec<_> = record.requests.iter().map(|request| request.session.unwrap()).collect();
    // By time: the first turns of both, the sub-agents, the second turns.
    assert_eq!((sessions.len(), record.block_tokens), (6, 64));
    assert_eq!((sessions[0], sessions[1]), (sessions[4], sessions[5]));
    assert!(sessions[0] != sessions[1] && sessions[2] != sessions[3] && sessions[0] != sessions[2]);
    let blocks = |place: usize| record.blocks(&record.requests[place]);
    assert_eq!(blocks(0), &blocks(4)[..2]);
    assert_ne!(blocks(0), blocks(1), "blocks are equal within a line only");
    assert_eq!(record.requests[4].at, record.requests[0].at + Duration::from_millis(4_500));
    assert_eq!(record.requests[0].end, Some(Duration::from_millis(2_500)));
    let short = read(&line("x", "[1, 2]")).unwrap_err().to_string();
    assert_eq!(short, "line 1: the number of hash_ids is 2 for 192 tokens; must be at least 3");
    let other =
        line("x", "[1, 2, 3]") + &line("y", "[1, 2, 3]").replace("\"block_size\": 64", "\"block_size\": 128");
    assert_eq!(
        read(&other).unwrap_err().to_string(),
        "line 2: block_size is 128; must be 64, the first line's"
    );
}

#[test]
fn a_record_of_several_files_has_the_time_of_each_header() {
    let record = read(
        "{\"record\":\"endpoint-picker/1\",\"started\":1000000,\"block_tokens\":64}\n\
         {\"timestamp\":500,\"input_length\":130,\"output_length\":3,\"hash_ids\":[7,8],\"session\":\"ab\",\
          \"adapter\":\"a\",\"endpoint\":\"10.0.0.1:8000\",\"first_token_ms\":20.5,\"end_ms\":100,\
          \"outcome\":\"served\",\"cached_tokens\":64,\"max_output_length\":9,\"why\":\"best\",\"tenant\":\"00\",\
          \"shadow\":\"10.0.0.2:8000\",\"shadow_agrees\":false}\n\
         {\"record\":\"endpoint-picker/1\",\"started\":1002000,\"block_tokens\":64}\n\
         {\"timestamp\":0,\"input_length\":1,\"output_length\":0,\"outcome\":\"rejected\"}\n",
    )
    .unwrap();
    let [first, second] = &record.requests[..] else { panic!("{record:?}") };
    assert_eq!((second.at, second.is_served, second.output), (Duration::from_millis(1_500), false, 1));
    assert_eq!((record.servers, record.block_tokens), (vec!["10.0.0.1:8000".to_owned()], 64));
    assert_eq!(
        (first.first_token, first.end),
        (Some(Duration::from_micros(20_500)), Some(Duration::from_millis(100)))
    );
    assert_eq!((first.cached, first.max_output, first.adapter), (Some(64), Some(9), Some(0)));
    assert!(first.session.is_some() && first.tenant.is_some() && first.is_served);
    assert_eq!(record.shadow, ShadowCounts { compared: 1, agreed: 0 });
}

#[test]
fn an_access_log_has_served_prompts() {
    let line = |path: &str, status: u16, second: u8| {
        format!(
            "{{\"time\":\"2026-11-29T15:46:0{second}.000Z\",\"method\":\"POST\",\"path\":\"{path}\",\
             \"status\":{status},\"upstream\":\"10.0.0.{second}:8000\",\"duration_ms\":1500,\
             \"bytes_received\":4000,\"bytes_sent\":25000}}\n"
        )
    };
    let log = [
        line("/v1/chat/completions", 200, 1),
        line("/v1/models", 200, 2),
        line("/v1/completions?a=b", 200, 3),
        line("/v1/completions", 503, 4),
    ];
    let record = read(&log.concat()).unwrap();
    let [first, second] = &record.requests[..] else { panic!("{record:?}") };
    assert_eq!((first.input, first.output, first.end), (1000, 100, Some(Duration::from_millis(1500))));
    assert_eq!((second.at, second.server, record.passed_over), (Duration::from_secs(2), Some(1), 2));
}

#[test]
fn a_file_that_is_no_record_is_refused_with_its_line() {
    let problem = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(
        problem("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n"),
        "line 2: TIMESTAMP is \"now\"; must be like 2023-11-16 18:15:46.68"
    );
    assert_eq!(
        problem("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,-1\n"),
        "line 2: GeneratedTokens is -1; must be 0 to 1048576"
    );
    assert!(problem("{\"timestamp\": 1}\n").starts_with("line 1: missing field `input_length` at column "));
    assert_eq!(
        problem("\n{\"timestamp\": 1, \"inp"),
        "line 2: EOF while parsing a string at column 21",
        "a file that was cut"
    );
    assert!(problem("").contains("no record"));
    let huge = "{\"timestamp\": 0, \"input_length\": 1000000, \"output_length\": 5, \"hash_ids\": [46]}";
    assert_eq!(problem(huge), "line 1: the number of hash_ids is 1 for 1000000 tokens; must be at least 977");
    assert_eq!(
        problem("{\"record\":\"endpoint-picker/2\",\"started\":1,\"block_tokens\":64}\n"),
        "line 1: record is \"endpoint-picker/2\"; must be \"endpoint-picker/1\""
    );
    assert_eq!(
        problem("{\"record\":\"endpoint-picker/1\",\"block_tokens\":0}\n"),
        "line 1: block_tokens is 0; must be 1 to 1024"
    );
    let endless = format!("{{\"timestamp\": 0, \"x\": \"{}", "a".repeat(MAX_LINE));
    assert_eq!(problem(&endless), "line 1: more than 67108864 bytes");
    let names = (0..=MAX_NAMES).map(|name| {
        format!("{{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"endpoint\":\"{name}\"}}\n")
    });
    assert_eq!(
        problem(&names.collect::<String>()),
        "line 1001: endpoint has more than 1000 different values"
    );
    let times = "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"end_ms\":1e300}\n";
    assert!(problem(times).starts_with("line 1: end_ms is 1000000"), "{}", problem(times));
}
