//! Short runs of `make chaos`, always the same ones.

use endpoint_picker_e2e::chaos::assert_survives;

#[tokio::test(flavor = "multi_thread")]
async fn no_servable_request_is_lost_whatever_breaks() {
    assert_survives(&["--seed", "4", "--seconds", "30"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_proxies_lose_none_and_agree_again_whatever_breaks() {
    assert_survives(&["--proxies", "2", "--seed", "2972", "--seconds", "25"]).await;
}
