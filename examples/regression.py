"""Disease progression after a year: a robust regression of targets with a public range."""

from sklearn.datasets import load_diabetes
from sklearn.linear_model import HuberRegressor
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import train_test_split

from sottovoce import PrivateRegressor


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    open_model = HuberRegressor(alpha=1e-4, max_iter=1000).fit(X, y)
    print(f"without privacy: off by {mean_absolute_error(y_test, open_model.predict(X_test)):.0f} on average")
    for epsilon in (2.0, 8.0):
        # from the documentation: targets go from 25 to 346; ten columns whose squares sum to 1 over 442 rows, so that
        # a typical row has length 0.15, and longer ones than 0.2 may well be scaled down
        model = PrivateRegressor(epsilon, row_norm=0.2, target_bounds=(25, 346), random_state=0).fit(X, y)
        print(f"off by {mean_absolute_error(y_test, model.predict(X_test)):.0f}. {model.privacy_.verdict()}")


if __name__ == "__main__":
    main()
