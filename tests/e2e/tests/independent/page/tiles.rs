//! The tiles of the first line that reports of proxies fill.

use super::{Watched, send_report};
use anyhow::ensure;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_wire::report::{Report, Resumptions, StatisticCount, StreamReason};
use std::cell::Cell;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_how_often_a_shadow_agrees_and_nothing_without_one() {
    let Watched { agent, browser, .. } = &Watched::start().await;
    browser.open(agent.address()).await.unwrap();
    let shows = async |what: &str, expected: &str, reports: &[(&str, Option<(u64, u64)>)]| {
        eventually(what, async || {
            for (proxy, shadow) in reports {
                let report = Report {
                    proxy: (*proxy).to_owned(),
                    shadow_agreed: shadow.map(|(agreed, _)| agreed),
                    shadow_disagreed: shadow.map(|(_, disagreed)| disagreed),
                    ..Report::default()
                };
                send_report(agent, report).await;
            }
            let shown = browser.evaluate::<String>("document.getElementById('proxies').innerText").await?;
            let all_report = reports.iter().all(|(proxy, _)| shown.contains(proxy));
            ensure!(all_report, "{shown}");
            let facts = "[...document.querySelectorAll('#summary div')].map(it => it.innerText)";
            let facts = browser.evaluate::<Vec<String>>(facts).await?;
            let shadow: Vec<_> = facts.iter().filter(|fact| fact.contains("Shadow")).collect();
            let words: Vec<_> = shadow.iter().flat_map(|fact| fact.split_whitespace()).collect();
            ensure!(words.join(" ") == expected, "{facts:?}");
            anyhow::Ok(())
        })
        .await;
    };
    shows("no proxy has a shadow", "", &[("one", None), ("old", None)]).await;
    shows("a shadow without decisions", "Shadow agrees – of 0", &[("one", Some((0, 0))), ("old", None)])
        .await;
    let both = [("one", Some((9_000, 345))), ("two", Some((3_000, 0))), ("old", None)];
    shows("the shadows of several proxies are added up", "Shadow agrees 97.2 % of 12,345", &both).await;
    shows(
        "a single disagreement shows",
        "Shadow agrees 99.9 % of 9,999",
        &[("one", Some((9_998, 1))), ("two", Some((0, 0)))],
    )
    .await;
    shows("without a shadow again", "", &[("one", None), ("two", None)]).await;
}

/// The level and the words of the tile.
const SERVED_ELSEWHERE: &str = "[...document.querySelectorAll('#summary div')]\
    .filter(it => it.innerText.startsWith('Served elsewhere'))\
    .map(it => [it.dataset.level, ...it.innerText.trim().split(/\\s+/)].join(' ')).join()";

#[tokio::test(flavor = "multi_thread")]
async fn requests_served_elsewhere_are_red_while_they_come_and_a_warning_afterwards() {
    let Watched { agent, browser, .. } = &Watched::start().await;
    browser.open(agent.address()).await.unwrap();
    let served_elsewhere = Cell::new(0);
    let shows = async |what: &str, more: u64, is_expected: &dyn Fn(&str) -> bool| {
        eventually(what, async || {
            served_elsewhere.set(served_elsewhere.get() + more);
            let report = Report {
                proxy: "envoy".to_owned(),
                routed: 2 * served_elsewhere.get(),
                served_elsewhere: served_elsewhere.get(),
                ..Report::default()
            };
            send_report(agent, report).await;
            let shown = browser.evaluate::<String>("document.getElementById('proxies').innerText").await?;
            ensure!(shown.contains("envoy"), "{shown}");
            let tile = browser.evaluate::<String>(SERVED_ELSEWHERE).await?;
            ensure!(is_expected(&tile), "{tile:?}");
            anyhow::Ok(())
        })
        .await;
    };
    shows("no tile", 0, &str::is_empty).await;
    // An element that is replaced loses its tooltip, how far it is scrolled and what the user has selected in
    // it.
    let keep = "(() => { globalThis.kept = [document.querySelector('#summary div'), document.querySelector('#proxies tbody tr')]; \
                return true; })()";
    assert!(browser.evaluate::<bool>(keep).await.unwrap());
    shows("a red tile", 1, &|tile| tile.starts_with("bad Served elsewhere ") && !tile.contains(" 0/s "))
        .await;
    let all = served_elsewhere.get();
    let ended = format!("warning Served elsewhere 0/s of {all} in all");
    // Numbers have separators of thousands.
    shows("a warning", 0, &|tile| tile.replace(',', "") == ended).await;
    assert!(browser.evaluate::<bool>("kept.every(it => it.isConnected)").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_streams_and_turns_are_added_up_and_a_cut_stream_is_a_warning() {
    const TILES: &str = "[...document.querySelectorAll('#summary div')]\
        .filter(it => it.innerText.startsWith('Streams resumed') || it.innerText.startsWith('Session reuse'))\
        .map(it => [it.dataset.level, ...it.innerText.trim().split(/\\s+/)].join(' ')).join()";
    let Watched { agent, browser, .. } = &Watched::start().await;
    browser.open(agent.address()).await.unwrap();
    let counts = |resumed, cuts: &[(&str, u64)]| {
        let cut = |&(reason, streams): &(&str, u64)| StreamReason { reason: reason.to_owned(), streams };
        let cut = cuts.iter().map(cut).collect();
        let resumptions = Some(Resumptions { resumable: 600, resumed, cut, unresumable: vec![] });
        Report { resumptions, ..Report::default() }
    };
    let session = |turns, matched| {
        let counts = [
            ("sessions", "codex", 2),
            ("session_turns", "codex", turns),
            ("session_blocks", "", 500),
            ("session_blocks_matched", "", matched),
        ];
        let counts = counts.map(|(statistic, value, count)| {
            let (statistic, value) = (statistic.to_owned(), value.to_owned());
            StatisticCount { statistic, value, count }
        });
        Report { counts: counts.into(), ..Report::default() }
    };
    let shows = async |expected: &str, reports: [Report; 2]| {
        eventually(expected, async || {
            for (proxy, report) in ["one", "two"].into_iter().zip(&reports) {
                send_report(agent, Report { proxy: proxy.to_owned(), ..report.clone() }).await;
            }
            let shown = browser.evaluate::<String>(TILES).await?;
            ensure!(shown == expected, "{shown}");
            anyhow::Ok(())
        })
        .await;
    };
    shows(" Streams resumed 3 of 600", [counts(3, &[]), Report::default()]).await;
    let cut = counts(4, &[("refused", 1), ("too_large", 1)]);
    shows("warning Streams resumed 7 2 of 1,200 cut", [counts(3, &[]), cut]).await;
    shows("", [session(0, 0), Report::default()]).await;
    shows(" Session reuse 89.0 % 12 turns after 4 first", [session(7, 450), session(5, 440)]).await;
}
