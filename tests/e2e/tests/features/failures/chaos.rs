//! A short run of `make chaos` with two proxies that share, always the same one.

use endpoint_picker_e2e::chaos::assert_survives;

#[tokio::test(flavor = "multi_thread")]
async fn two_proxies_lose_none_and_agree_again_whatever_breaks() {
    assert_survives(&["--proxies", "2", "--seed", "2972", "--seconds", "25"]).await;
}
