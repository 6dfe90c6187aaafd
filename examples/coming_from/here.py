from task import records

from sottovoce import PrivateClassifier

X, y, X_test, y_test, hospital = records()
model = PrivateClassifier(
    epsilon=1.0, delta=1e-5, row_norm=2.0, classes=[0, 1]
)
model.fit(X, y, nodes=hospital)
accuracy = model.score(X_test, y_test)
print(f"accuracy {accuracy:.3f}. {model.privacy_.verdict()}")
