//! The slow mean and the ridge regression by which latencies are learnt, over all samples.

/// A mean that gives the newest this weight.
pub(super) fn mean(first: f64, weight: f64, values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(first, |mean, value| mean + weight * (value - mean))
}

/// Milliseconds per token and per request, and the rest.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) c: f64,
    pub(super) b: f64,
    rest: f64,
}

impl Line {
    pub(super) fn at(self, x: f64, n: f64) -> f64 {
        (self.c * x + self.b * n + self.rest).max(0.0)
    }
}

/// The ridge regression of these samples (x, n, y, weight).
fn fit(samples: &[[f64; 4]], c0: f64) -> Line {
    let age = |at: usize| 0.999_f64.powi(i32::try_from(samples.len() - 1 - at).unwrap());
    let sum = |of: &dyn Fn(&[f64; 4]) -> f64| -> f64 {
        samples.iter().enumerate().map(|(at, sample)| age(at) * sample[3] * of(sample)).sum()
    };
    let weight = sum(&|_| 1.0);
    if weight <= 0.0 {
        return Line { c: c0, b: 0.1, rest: 0.0 };
    }
    let means = [0, 1, 2].map(|at| sum(&|sample| sample[at]) / weight);
    let off = |sample: &[f64; 4], at: usize| sample[at] - means[at];
    let xx = sum(&|sample| off(sample, 0).powi(2)) + 450_000.0;
    let nn = sum(&|sample| off(sample, 1).powi(2)) + 125.0;
    let xn = sum(&|sample| off(sample, 0) * off(sample, 1));
    let xy = sum(&|sample| off(sample, 0) * off(sample, 2)) + 450_000.0 * c0;
    let ny = sum(&|sample| off(sample, 1) * off(sample, 2)) + 12.5;
    let determinant = xx * nn - xn * xn;
    let per_token = ((xy * nn - ny * xn) / determinant).clamp(c0 / 20.0, c0 * 20.0);
    let per_request = ((ny * xx - xy * xn) / determinant).clamp(0.0, 5.0);
    let rest = means[2] - per_token * means[0] - per_request * means[1];
    Line { c: per_token, b: per_request, rest }
}

/// The line of all samples, and what each was predicted by those before.
pub(super) fn learn(samples: &[[f64; 3]], c0: f64) -> (Line, Vec<f64>) {
    let (mut weighted, mut all): (Vec<[f64; 4]>, Vec<f64>) = (Vec::new(), Vec::new());
    for &[x, n, y] in samples {
        let predicted = fit(&weighted, c0).at(x, n);
        let weight = 1.0 / (1.0 + (predicted / 50.0).powi(2));
        weighted.push([x, n, y.min(4.0 * predicted.max(20.0)), weight]);
        all.push(predicted);
    }
    (fit(&weighted, c0), all)
}
