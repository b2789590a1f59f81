//! The page's table, as the browser shows it.

use anyhow::{Result, anyhow, ensure};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Browser;
use endpoint_picker_model_server::ModelServer;

/// The texts of the table's cells, without the charts' own, for the endpoints in the order in which they are
/// shown.
pub(super) const ROWS: &str = "[...document.querySelectorAll('#endpoints tbody tr')].map(row => \
                    [...row.cells].filter(cell => cell.className !== 'spark').map(cell => cell.innerText))";

/// One row of the table.
#[derive(Debug)]
pub(super) struct Row(Vec<String>);

impl Row {
    pub(super) fn is_of(&self, server: &ModelServer) -> bool {
        self.0[1].contains(&server.endpoint())
    }

    /// Why the endpoint is in its state, and since when.
    pub(super) fn reason(&self) -> &str {
        self.0[0].lines().nth(1).unwrap_or_default()
    }

    /// State, waiting requests, running requests, KV cache, requests in flight, adapters.
    pub(super) fn values(&self) -> [&str; 6] {
        // The state's second line is its reason.
        let text = |index: usize| self.0[index].lines().next().unwrap_or_default();
        [0, 2, 3, 4, 5, 9].map(text)
    }
}

pub(super) async fn rows(browser: &Browser) -> Result<Vec<Row>> {
    Ok(browser.evaluate::<Vec<Vec<String>>>(ROWS).await?.into_iter().map(Row).collect())
}

pub(super) async fn row(browser: &Browser, server: &ModelServer) -> Result<Row> {
    let rows = rows(browser).await?;
    let seen = format!("{} is not among {rows:?}", server.endpoint());
    rows.into_iter().find(|row| row.is_of(server)).ok_or_else(|| anyhow!(seen))
}

pub(super) async fn shows(browser: &Browser, server: &ModelServer, values: [&str; 6]) {
    eventually(&format!("{} shows {values:?}", server.endpoint()), async || {
        let row = row(browser, server).await?;
        ensure!(row.values() == values, "{row:?}");
        anyhow::Ok(())
    })
    .await;
}

pub(super) async fn is_true(browser: &Browser, expression: &str) {
    eventually(expression, async || {
        ensure!(browser.evaluate::<bool>(expression).await?, "it is false");
        anyhow::Ok(())
    })
    .await;
}
