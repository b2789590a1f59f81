//! The report as one HTML file, with charts by the library of the agent's page.

use super::Report;
use core::fmt::Write;

const SCRIPT: &str = include_str!("../../../src/page/vendor/uplot/uPlot.iife.min.js");
const STYLE: &str = include_str!("../../../src/page/vendor/uplot/uPlot.min.css");
const CHARTS: &str = include_str!("charts.js");

/// The page. It loads nothing.
pub fn page(report: &Report) -> Result<String, serde_json::Error> {
    // A name of the record must not end the script.
    let data = serde_json::to_string(report)?.replace('<', "\\u003c");
    let mut page = String::with_capacity(SCRIPT.len() + STYLE.len() + data.len() + 8_192);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Replay</title>\n<style>{STYLE}\n\
         body {{ font: 15px system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em }}\n\
         pre {{ font-size: 13px; overflow-x: auto }}\n</style>\n<h1>Replay</h1>\n<pre>{}</pre>\n\
         <h2>Time to the first token</h2>\n<div id=\"times\"></div>\n<h2>Requests of each server</h2>\n\
         <div id=\"servers\"></div>\n<script id=\"data\" type=\"application/json\">{data}</script>\n\
         <script>{SCRIPT}</script>\n<script>{CHARTS}</script>\n</html>\n",
        escaped(&report.to_string())
    );
    Ok(page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
