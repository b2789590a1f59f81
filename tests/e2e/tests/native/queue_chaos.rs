//! A short run of `make chaos FLOW_CONTROL=1`, always the same one.

use endpoint_picker_e2e::chaos::assert_survives;

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_answered_or_refused_whatever_breaks_while_the_queue_is_full() {
    assert_survives(&["--flow-control", "--seed", "2129", "--seconds", "25"]).await;
}
