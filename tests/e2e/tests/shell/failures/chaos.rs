//! A short run of `make chaos`, always the same one.

use endpoint_picker_e2e::chaos::assert_survives;

#[tokio::test(flavor = "multi_thread")]
async fn no_servable_request_is_lost_whatever_breaks() {
    assert_survives(&["--seed", "4", "--seconds", "30"]).await;
}
