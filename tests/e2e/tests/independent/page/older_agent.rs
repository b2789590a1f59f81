//! The status of an agent that is older than the page: behind one address while agents are replaced.

use super::Watched;
use super::table::{ROWS, is_true};

/// Runs before the page's scripts: responses of the API have the fields of the first agents only.
const OLDER_API: &str = r#"
    globalThis.errors = [];
    addEventListener("error", ({ message }) => errors.push(message));
    addEventListener("unhandledrejection", ({ reason }) => errors.push(String(reason)));
    globalThis.statuses = 0;
    const values = { waiting: [1, 2], running: [3, 4], kv_usage: [0.1, 0.2], in_flight: [5, 6], picks_per_second: [null, 7] };
    const older = {
      "/v1/pools": { version: "0.1.0", pools: ["default"], refused: { count: 0, objects: [] } },
      "/v1/pools/default/history": { ages_ms: [2000, 1000], endpoints: { a: values } },
      "/v1/pools/default": {
        pool: "default",
        endpoints: [{
          name: "a", address: "10.0.0.1:8000", state: "stale", age_ms: 3000, waiting: 2, running: 4, kv_usage: 0.2, lora: null, block_size: null,
          num_blocks: null, sent: { picks: 9, picks_per_second: 7, requests: 6, tokens: 8, failing: false },
        }],
        proxies: [{ proxy: "envoy-1", age_ms: 10, routed: 9, abstained: 0, rejected: {} }],
      },
    };
    globalThis.fetch = async (path) => {
      if (path === "/v1/pools/default") statuses += 1;
      return Response.json(older[path]);
    };
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_agent_does_not_report_is_a_dash_and_no_script_fails() {
    let Watched { agent, browser, .. } = &Watched::start().await;
    browser.run_before_scripts(OLDER_API).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    is_true(browser, "statuses > 1").await;

    let texts = |selector: &str| {
        format!(
            "[...document.querySelectorAll('{selector}')].map(it => it.innerText.trim().split(/\\s+/).join(' '))"
        )
    };
    let rows: Vec<Vec<String>> = browser.evaluate(ROWS).await.unwrap();
    assert_eq!(rows, [["stale", "a\n10.0.0.1:8000", "2", "4", "20 %", "6", "7.0", "–", "–", "–"]]);
    let tiles: Vec<String> = browser.evaluate(&texts("#summary div")).await.unwrap();
    assert_eq!(
        tiles,
        [
            "Routed –",
            "Left to Envoy –",
            "Rejected –",
            "Proxies 1 unknown",
            "First token, p50 –",
            "Prefix hits –",
            "Endpoints ready 0 of 1",
        ]
    );
    let proxies: Vec<String> = browser.evaluate(&texts("#proxies tbody td")).await.unwrap();
    assert_eq!(proxies, ["envoy-1", "unknown", "9", "–", "–", "0", "0", "10 ms"]);
    let open = "(() => { document.querySelector('#endpoints tbody tr').click(); return true; })()";
    assert!(browser.evaluate::<bool>(open).await.unwrap());
    let facts: Vec<String> = browser.evaluate(&texts("#details dd")).await.unwrap();
    assert_eq!(facts[0], "stale");
    let state = "document.getElementById('connection').innerText";
    assert_eq!(browser.evaluate::<String>(state).await.unwrap(), "live");
    assert_eq!(browser.evaluate::<Vec<String>>("errors").await.unwrap(), Vec::<String>::new());
}
