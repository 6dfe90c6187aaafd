from sklearn.linear_model import LogisticRegression
from task import records

X, y, X_test, y_test, hospital = records()
model = LogisticRegression().fit(X, y)
print(f"accuracy {model.score(X_test, y_test):.3f}, not private")
