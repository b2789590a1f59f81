//! The live page at `/`: static files that are built into the program.
//!
//! Its scripts poll the agent's API. The page may load nothing from elsewhere.

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use endpoint_picker_wire::statistics::{Level, Statistic, shown_requests};
use serde_json::{Value, json};

/// Rights of the page in the browser: it loads from here, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PERMISSIONS: HeaderName = HeaderName::from_static("permissions-policy");

struct PageAsset {
    path: &'static str,
    kind: &'static str,
    content: fn() -> &'static str,
}

macro_rules! asset {
    ($path:literal, $kind:literal, $file:literal) => {
        PageAsset { path: $path, kind: $kind, content: || include_str!($file) }
    };
}

const ASSETS: [PageAsset; 16] = [
    PageAsset { path: "/", kind: "text/html; charset=utf-8", content: || &INDEX },
    asset!("/page/page.css", "text/css; charset=utf-8", "assets/page.css"),
    asset!("/page/main.js", "text/javascript; charset=utf-8", "assets/main.js"),
    asset!("/page/agent.js", "text/javascript; charset=utf-8", "assets/agent.js"),
    asset!("/page/charts.js", "text/javascript; charset=utf-8", "assets/charts.js"),
    asset!("/page/columns.js", "text/javascript; charset=utf-8", "assets/columns.js"),
    asset!("/page/details.js", "text/javascript; charset=utf-8", "assets/details.js"),
    asset!("/page/formats.js", "text/javascript; charset=utf-8", "assets/formats.js"),
    asset!("/page/lists.js", "text/javascript; charset=utf-8", "assets/lists.js"),
    asset!("/page/queue.js", "text/javascript; charset=utf-8", "assets/queue.js"),
    asset!("/page/rows.js", "text/javascript; charset=utf-8", "assets/rows.js"),
    asset!("/page/table.js", "text/javascript; charset=utf-8", "assets/table.js"),
    asset!("/page/tiles.js", "text/javascript; charset=utf-8", "assets/tiles.js"),
    asset!("/page/icon.svg", "image/svg+xml", "assets/icon.svg"),
    asset!("/page/uplot.js", "text/javascript; charset=utf-8", "vendor/uplot/uPlot.iife.min.js"),
    asset!("/page/uplot.css", "text/css; charset=utf-8", "vendor/uplot/uPlot.min.css"),
];

/// The page with the table of statistics, from which its scripts make columns and tiles.
static INDEX: LazyLock<String> = LazyLock::new(|| {
    let statistic = |(row, words, level): (&Statistic, &str, Level)| {
        let (level, mistake) = match level {
            Level::Good => ("good", String::new()),
            Level::Warning => ("warning", String::new()),
            Level::Fault(mistake) => ("bad", format!(": {mistake}")),
        };
        json!({"name": row.name, "words": words, "level": level, "help": format!("{}{mistake}", row.help)})
    };
    let list: Value = shown_requests().map(statistic).collect();
    let (place, end) = ("<script id=\"statistics\" type=\"application/json\">", "</script>");
    include_str!("assets/index.html").replacen(&format!("{place}{end}"), &format!("{place}{list}{end}"), 1)
});

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS
        .iter()
        .fold(Router::new(), |router, asset| router.route(asset.path, get(|| async { serve(asset) })))
}

fn serve(asset: &'static PageAsset) -> Response {
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (PERMISSIONS, "camera=(), geolocation=(), microphone=()"),
        // Another version of the agent has other files under these names.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, (asset.content)()).into_response()
}
