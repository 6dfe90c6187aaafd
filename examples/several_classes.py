"""Ten digits: one softmax model, against ten models of one class against the rest in a single release."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sottovoce import PrivateClassifier, PublicScaler


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    for loss in ("softmax", "hinge"):
        model = make_pipeline(
            PublicScaler(bounds=(0, 16), feature_range=(0, 1)),  # pixels go from 0 to 16
            PrivateClassifier(epsilon=4.0, loss=loss, row_norm=4.0, classes=range(10), random_state=0),
        ).fit(X, y)
        bound = model[-1].privacy_.worst.event.clip
        print(f"{loss}: accuracy {model.score(X_test, y_test):.3f}; a record's gradient has length {bound:.3f} at most")
        print(model[-1].privacy_.verdict())


if __name__ == "__main__":
    main()
