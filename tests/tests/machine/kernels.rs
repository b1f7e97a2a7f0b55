//! What works on which of the distribution's stock kernels. The whole matrix takes longer than a
//! test should: `make test-kernels`.

use dormouse_tests::dormouse;

#[test]
#[ignore = "fetches kernels of several releases and boots each of them: make test-kernels"]
fn no_check_fails_on_a_stock_kernel_that_has_the_feature() {
    let said = dormouse(&["lab", "kernels", "--json"]);
    assert_eq!(said.code, 0, "{}", said.all());
    let report = said.report();
    let kernels = report["kernels"].as_array().expect("kernels");
    assert!(
        kernels.len() >= 8,
        "two flavours of four releases: {report}"
    );
    for kernel in kernels {
        for check in ["module", "sleep", "process", "scheduler", "devices"] {
            let verdict = &kernel["checks"][check];
            let status = verdict["status"].as_str().unwrap_or_default();
            let named = verdict["missing"]
                .as_str()
                .is_some_and(|missing| !missing.is_empty());
            assert!(
                status == "ok" || (status == "not-available" && named),
                "{}: {check}: {verdict}",
                kernel["release"]
            );
        }
    }
}
